/* A batch on its way into a server: its manifest, its one partition, and two processes that lead in turn.

   The sender sends the manifest, then the partition if the server misses it, and so on until the server
   misses nothing; then it forgets the batch. Either side may stop at every step. A disk may lose the key
   under which the server stores what came.

   services/batch_transfer.py, stores/round_store.py (`accept`, `clear`).
   Each name in capitals that `#ifdef` asks for brings back a bug. */

#include "tables.pml"

#define TOKENS 2	/* so often a process takes the lease */
#define SENDS 5		/* so often the sender sends something */

byte phase = SERVER_AWAITING;
byte fence = 1;
byte manifest, part;		/* the number of the key that they are under; 0: not there */
byte round_key, keys;
bool forgotten;			/* the sender has forgotten the batch */
bool is_lost;			/* the disk has lost a key */

#define TRANSACTION(statements) \
	atomic { done = false; if :: fence == token -> statements :: else -> skip fi }

/* Store the manifest; with `whole` the server then has its batch. */
inline accept(whole)
{
	TRANSACTION(
		if
		:: phase != SERVER_AWAITING -> done = (phase != SERVER_ABANDONED)
		:: else ->
			again = false;
			if
			:: manifest != 0 && manifest != round_key ->
				manifest = 0;
				part = 0;
				again = true
			:: else -> skip
			fi;
			if
			:: manifest == 0 && round_key == 0 -> keys++; round_key = keys
			:: else -> skip
			fi;
			manifest = round_key;
			done = true;
			if
#ifdef ACCEPTED_AFTER_A_LOSS
			:: whole -> server_accept(phase, done)
#else
			:: whole && again -> done = false	/* the sender sends the partition again */
			:: whole && !again -> server_accept(phase, done)
#endif
			:: else -> skip
			fi
		fi)
}

active proctype Leader()
{
	/* Another process takes the lease at any moment. */
	fence = TOKENS
}

/* A request at a process that leads, or led when the request came. */
active proctype Sender()
{
	byte token, key, times;
	bool done, again, misses;

	do
	:: times < SENDS && !forgotten ->
		times++;
		token = fence;
		if
		:: true ->		/* the manifest */
			if
			:: phase != SERVER_AWAITING -> misses = false
			:: else ->
				accept(false);
				if :: !done -> goto next :: else -> skip fi;
				misses = (part == 0)
			fi;
			if
			:: misses -> skip
			:: else ->
				accept(true);
				if :: done -> forgotten = true :: else -> skip fi
			fi
		:: true ->		/* the partition: no transaction */
			if
			:: manifest != 0 && round_key != 0 && manifest == round_key ->
				key = round_key;
				if
				:: key != 0 -> part = key
				:: else -> skip
				fi
			:: else -> skip
			fi
		fi;
next:		skip
	:: else -> break
	od
}

active proctype Disk()
{
	if
	:: atomic { phase == SERVER_AWAITING && round_key != 0 -> round_key = 0; is_lost = true }
	:: true
	fi
}

/* Removes files that no key opens: files are listed before keys, or else after them. */
active proctype Clear()
{
	bool has_files, has_key;
#ifdef LEFTOVERS_KEYS_FIRST
	has_key = (round_key != 0);
	has_files = (part != 0);
#else
	has_files = (part != 0);
	has_key = (round_key != 0);
#endif
	if
#ifdef LEFTOVERS_KEYS_FIRST
	:: has_files && !has_key -> part = 0
#else
	:: has_files && !has_key && !SERVER_AHEAD_ROUND(phase) -> part = 0
#endif
	:: else -> skip
	fi
}

/* Abandons the round at its deadline. */
active proctype Deadline()
{
	byte token;
	bool done;

	token = fence;
	TRANSACTION(
		server_abandon(phase, done);
		if
		:: done -> round_key = 0; manifest = 0; part = 0
		:: else -> skip
		fi)
}

active proctype End()
{
	timeout ->
	assert(!forgotten || phase == SERVER_BATCHED);		/* what a sender forgets, the server has */
	assert(phase != SERVER_BATCHED || part == round_key)	/* and can open */
}
