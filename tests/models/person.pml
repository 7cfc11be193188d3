/* Two programs of one person, with one folder.

   Each stores a ticket, writes a letter, and follows the board's log. A lock of the folder is held while a
   file is read and replaced.

   services/person/store.py, services/person/session.py, services/person/board_view.py.
   Each name in capitals that `#ifdef` asks for brings back a bug. */

bool locked;
bool has_ticket;
byte reports;			/* reports that left */
byte counter;			/* of the ticket: how many letters were written */
bool used[3];			/* counters of letters that left */
byte log_size, stored;		/* the board's log, and the last checkpoint that is stored */

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

active proctype Log()
{
	do
	:: log_size < 3 -> log_size++
	:: else -> break
	od
}

active [2] proctype Program()
{
	bool existing;
	byte number, fetched, before;

	/* Join: a program that finds a ticket sends the bytes of that ticket. */
#ifndef TICKET_WITHOUT_LOCK
	LOCK;
#endif
	existing = has_ticket;
	if
	:: !existing -> has_ticket = true; reports++
	:: else -> skip
	fi;
#ifndef TICKET_WITHOUT_LOCK
	UNLOCK;
#endif
	assert(reports == 1);

	/* Write a letter: the ticket is stored before the letter leaves. */
#ifndef COUNTER_WITHOUT_LOCK
	LOCK;
#endif
	number = counter;
	counter = number + 1;
#ifndef COUNTER_WITHOUT_LOCK
	UNLOCK;
#endif
	atomic { assert(!used[number]); used[number] = true };

	/* Follow the log: a newer checkpoint is never replaced by an older one. */
	fetched = log_size;
#ifdef CHECKPOINT_AS_FETCHED
	before = stored;
	atomic { assert(fetched >= stored); stored = fetched }
#else
	LOCK;
	before = stored;
	if
	:: fetched > before -> atomic { assert(fetched >= stored); stored = fetched }
	:: else -> skip
	fi;
	UNLOCK
#endif
}
