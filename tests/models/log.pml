/* A board's log, and two processes of this board that lead in turn.

   A client sends two letters, and sends each again until the board says that it has it. A reader asks for
   the checkpoint, and a reader who demands a witness for the note that a witness cosigned. The log must
   never seem to shrink, and what the board says that it has must be under its checkpoint.

   services/board/routes.py, services/board/log.py.
   Each name in capitals that `#ifdef` asks for brings back a bug. */

#define LETTERS 2
#define TOKENS 3	/* so often a process takes the lease */

byte fence, size;		/* the database: the newest fencing token, the length of the log */
byte sent = 1;			/* the letter that the client sends now */
byte checkpoint, note;		/* the largest that a reader has seen */

active [2] proctype Process()
{
	byte token, seen, cosigned, asked, length;

lead:	atomic {
		if
		:: fence < TOKENS -> fence++; token = fence
		:: else -> goto stop
		fi
	}
	seen = size;			/* `load`: before any request is answered */
#ifndef NOTE_OF_AN_EARLIER_TERM
	cosigned = 0;
#endif
	asked = 0;
	do
	:: fence != token -> goto lead
	:: atomic { fence == token && sent <= LETTERS ->
		/* Append the letter, unless it is there; its place is `sent`. */
		if
		:: size < sent -> size++; length = size
#ifdef COMMIT_WITHOUT_ANSWER
		:: else -> length = seen
#else
		:: else -> length = size
#endif
		fi }
		if
		:: length = seen	/* the database took it, and its answer was lost */
		:: seen = (length > seen -> length : seen);
		   atomic {
			if
			:: fence == token -> assert(seen >= sent); sent++
			:: else -> skip
			fi }
		fi
	:: atomic { fence == token && asked == 0 && seen > 0 -> asked = seen }
	:: atomic { asked != 0 -> cosigned = asked; asked = 0 }
	:: atomic { fence == token -> assert(seen >= checkpoint); checkpoint = seen }
	:: atomic { fence == token && cosigned != 0 -> assert(cosigned >= note); note = cosigned }
	:: break
	od;
stop:	skip
}
