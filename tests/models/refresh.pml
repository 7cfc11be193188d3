/* What a process holds of its rounds: two refreshes read the store and keep what they read.

   services/rounds.py, `RoundService.refresh`.
   Each name in capitals that `#ifdef` asks for brings back a bug. */

#define PHASES 3

byte stored, held;	/* the phase in the store, and in this process */
byte refreshes;		/* how many have ended; with a bug: have begun */
byte latest;

active proctype Store()
{
	do
	:: stored < PHASES -> stored++
	:: else -> break
	od
}

active [2] proctype Refresh()
{
	byte number, phase, times;

	do
	:: times < 2 ->
		times++;
again:
#ifdef ORDER_OF_BEGINNING
		atomic { refreshes++; number = refreshes };
#else
		number = refreshes;
#endif
		phase = stored;		/* slow: other refreshes may begin and end meanwhile */
		atomic {
			if
#if !defined(ORDER_OF_BEGINNING) && !defined(STALE_READING)
			:: number != refreshes -> goto again
#endif
#ifdef ORDER_OF_BEGINNING
			:: number < latest -> skip
#endif
			:: else ->
				assert(phase >= held);	/* no round falls back */
				held = phase;
#ifdef ORDER_OF_BEGINNING
				latest = number
#else
				refreshes++
#endif
			fi
		}
	:: else -> break
	od
}
