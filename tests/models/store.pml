/* A shuffler's round in its stores, and two processes of this shuffler that lead in turn.

   The database takes writes under the newest fencing token only. Keys and files are outside of it:
   every process reads and writes them at any moment, also one that leads no more. A process may stop
   for ever at every step, and the other one takes over. What the model leaves out: several groups and
   partitions, and the bytes. An upload is a count, and one of them is rubbish that does not open.

   services/shuffler/pipeline.py, services/shuffler/rounds.py, stores/round_store.py.
   Each name in capitals that `#ifdef` asks for brings back a bug. */

#include "tables.pml"

#define LEAST 2		/* the minimum crowd */
#define MOST 3		/* as many uploads come */
#define RUBBISH 1
#ifndef TOKENS
#define TOKENS 2	/* so often a process takes the lease */
#endif
#define ZEROS 99	/* what is in a key's file while it is destroyed */

/* The database. */
byte phase = SHUFFLER_OPEN;
byte fence;
byte uploads = LEAST;
byte peeled, gathered;	/* recorded results of the release, as counts; 0: none */
byte manifest;		/* the batch that is released, as a count */

/* The folder of keys: the number of a key, 0 if it is not there. */
byte round_key = 1, batch_key, keys;

/* The blob store: how many items a file has, 0 if it is not there, and the key that it is under. */
byte shares[MOST + 1];	/* by name */
byte out, out_key;

byte received;		/* what the next role has */
bool late;		/* whether the next role waits no longer */
byte gathering;		/* processes that are between `prepare` and the end of a release */

#ifdef NAMES_WITHOUT_COUNT
#define NAME(crowd) 0
#else
#define NAME(crowd) crowd
#endif

#ifdef ZEROS_ARE_A_KEY
#define IS_KEY(key) (key != 0)
#else
#define IS_KEY(key) (key != 0 && key != ZEROS)
#endif

inline make_batch_key()
{
	if
	:: IS_KEY(batch_key) -> skip
	:: else -> keys++; batch_key = keys
	fi
}

inline destroy_batch_key()
{
	if
	:: batch_key != 0 -> batch_key = ZEROS; batch_key = 0
	:: else -> skip
	fi
}

inline drop_batch() { d_step { out = 0; out_key = 0 } }

inline drop_round()
{
	d_step { shares[0] = 0; shares[LEAST] = 0; shares[MOST] = 0 }
}

/* A transaction of the leader: `statements` set `done`. */
#define TRANSACTION(statements) \
	atomic { done = false; if :: fence == token -> statements :: else -> skip fi }

active proctype People()
{
	do
	:: atomic { uploads < MOST && phase == SHUFFLER_OPEN -> uploads++ }
	:: else -> break
	od
}

active proctype Clock()
{
	late = true
}

#ifdef KEY_LOSS
/* A disk loses the key of a batch that nobody is making at this moment. */
active proctype Disk()
{
	if
	:: atomic { batch_key != 0 && phase == SHUFFLER_CLOSED && gathering == 0 -> batch_key = 0 }
	:: true
	fi
}
#endif

/* Removes files that no key opens. It needs no lease, and may be slow. */
active proctype Clear()
{
	bool has_files, has_key;
#ifdef LEFTOVERS_KEYS_FIRST
	has_key = IS_KEY(batch_key);
	has_files = (out != 0);
#else
	has_files = (out != 0);
	has_key = IS_KEY(batch_key);
#endif
	if
#if defined(LEFTOVERS_KEYS_FIRST) || defined(LEFTOVERS_OF_A_LATER_PHASE)
	:: has_files && !has_key -> drop_batch()
#else
	:: has_files && !has_key && !SHUFFLER_AHEAD_BATCH(phase) -> drop_batch()
#endif
	:: else -> skip
	fi
}

active [2] proctype Process()
{
	byte token, crowd, items, key;
	bool done, existing;

lead:	atomic {
		if
		:: fence < TOKENS -> fence++; token = fence
		:: else -> goto stop
		fi
	}
tick:	atomic { crowd = 0; items = 0; key = 0; existing = false; done = false };	/* fewer states */
	if
	:: phase == SHUFFLER_OPEN && uploads >= LEAST && !late -> goto close
	:: phase == SHUFFLER_CLOSED && !late -> goto release
	:: phase == SHUFFLER_RELEASED && !late -> goto deliver
	:: late -> goto expire
	:: fence != token -> goto lead
	:: phase == SHUFFLER_ABANDONED -> goto tell
	:: phase == SHUFFLER_DELIVERED || phase == SHUFFLER_ENDED -> goto stop
	:: true -> goto sweep
	fi;

sweep:	TRANSACTION(
		assert(!SHUFFLER_NEEDS_ROUND(phase) || round_key != 0);
		assert(!SHUFFLER_NEEDS_BATCH(phase) || IS_KEY(batch_key));
		if
		:: !SHUFFLER_NEEDS_ROUND(phase) && !SHUFFLER_MAY_ROUND(phase) -> round_key = 0
		:: else -> skip
		fi;
		if
		:: !SHUFFLER_NEEDS_BATCH(phase) && !SHUFFLER_MAY_BATCH(phase) -> batch_key = 0
		:: else -> skip
		fi);
	goto stop;

close:	TRANSACTION(shuffler_close(phase, done));
	goto tick;

	/* `release` in the pipeline, in a worker: only its writes to the database ask for the lease. */
release:
	atomic { crowd = uploads; items = gathered };
	if
	:: peeled == crowd && shares[NAME(crowd)] != 0 -> skip
	:: else ->
		if
		:: round_key == 0 -> goto tick
		:: else -> shares[NAME(crowd)] = crowd
		fi;
		TRANSACTION(if :: SHUFFLER_WORKING(phase) -> peeled = crowd; done = true :: else -> skip fi);
		if :: !done -> goto tick :: else -> skip fi
	fi;
	if
	:: shares[NAME(crowd)] < LEAST + RUBBISH -> goto reopen
	:: else -> skip
	fi;

	/* `prepare`: the key of the batch before its first file. */
	existing = (out != 0);
	TRANSACTION(
		if
		:: phase == SHUFFLER_CLOSED ->
			done = true;
			gathering++;
#ifndef FILES_OF_A_LOST_KEY
			if
			:: existing && !IS_KEY(batch_key) -> drop_batch()
			:: else -> skip
			fi;
#endif
			make_batch_key()
		:: else -> skip
		fi);
	if :: !done -> goto tick :: else -> skip fi;
	if
	:: items != 0 && out != 0 -> skip	/* an earlier try gathered */
	:: else ->
		items = shares[NAME(crowd)];
		key = batch_key;
		if
		:: !IS_KEY(key) || items == 0 -> gathering--; goto tick
		:: else -> assert(key != ZEROS)		/* nothing is sealed under zeros */
		fi;
		items = items - RUBBISH;
		d_step { out = items; out_key = key };
		TRANSACTION(if :: SHUFFLER_WORKING(phase) -> gathered = items; done = true :: else -> skip fi);
		if :: !done -> gathering--; goto tick :: else -> skip fi
	fi;
	TRANSACTION(
		shuffler_release(phase, done);
		if
		:: done ->
			assert(items >= LEAST);			/* no release below the minimum */
			assert(items == uploads - RUBBISH);	/* of everybody who came */
			manifest = items;
			peeled = 0;
			gathered = 0;
			make_batch_key()
		:: else -> skip
		fi);
	gathering--;
	if :: !done -> goto tick :: else -> skip fi;
	round_key = 0;
	drop_round();
	goto tick;

reopen:	TRANSACTION(
		shuffler_reopen(phase, done);
		if
		:: done ->
			peeled = 0;
			gathered = 0
#ifndef KEY_AFTER_THE_MOVE
			; destroy_batch_key()
#endif
		:: else -> skip
		fi);
	if :: !done -> goto tick :: else -> skip fi;
#ifdef KEY_AFTER_THE_MOVE
	destroy_batch_key();
#endif
	if
	:: drop_round()
	:: true			/* the blob store is away */
	fi;
	goto tick;

deliver:
	items = manifest;
	key = batch_key;
	if
	:: out == 0 || out_key != key || out != items ->
		assert(fence != token || phase != SHUFFLER_RELEASED);	/* a leader can read its batch */
		goto tick
	:: else -> skip
	fi;
	atomic {
		assert(received == 0 || received == items);	/* nothing is released twice */
		received = items
	};
	TRANSACTION(shuffler_forget(phase, done); if :: done -> manifest = 0 :: else -> skip fi);
	if
	:: done -> destroy_batch_key(); drop_batch()
	:: else -> skip
	fi;
	goto tick;

expire:	TRANSACTION(
		shuffler_expire(phase, done);
		if :: done -> manifest = 0; peeled = 0; gathered = 0 :: else -> skip fi);
	if
	:: done -> round_key = 0; destroy_batch_key(); drop_batch(); drop_round()
	:: else -> skip
	fi;
	goto stop;

tell:	TRANSACTION(shuffler_tell(phase, done));

stop:	skip
}
