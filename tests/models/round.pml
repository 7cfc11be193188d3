/* One round at two shufflers, the server and the board, with deadlines.

   A role acts on what it read a moment ago, while other roles send to it. A request is carried out once
   or several times, and its sender may not learn of it. The clock may move at any moment.

   services/shuffler/rounds.py, services/server/rounds.py, protocol/board.py.
   Each name in capitals that `#ifdef` asks for, and each transition that test_models.py adds to the
   tables, brings back a bug. */

#include "tables.pml"

/* Outcomes on the board. */
#define ANSWERED 1
#define REFUSED 2
#define BY_SERVER 3
#define BY_SHUFFLER 4	/* and the next number for the second one */

#define PATIENCE 5	/* the clock: due(1) to due(4) are 1 to 4, then nobody tries any longer */

byte now;
byte first = SHUFFLER_OPEN, second = SHUFFLER_OPEN, server = SERVER_PROPOSED;
byte shown;			/* the outcome on the board */
byte heard, stored;		/* the outcome that the second shuffler, and the server, passes on */
bool first_released, second_accepted, server_accepted, has_key = true;

/* The board shows the first outcome, and takes the same one again. */
inline publish(outcome, taken)
{
	atomic {
		if
#ifdef LAST_OUTCOME_COUNTS
		:: true -> assert(shown == 0 || shown == outcome); shown = outcome; taken = true
#else
		:: shown == 0 || shown == outcome -> shown = outcome; taken = true
		:: else -> taken = false
#endif
		fi
	}
}

active proctype Clock()
{
	do
	:: now < PATIENCE -> now++
	:: else -> break
	od
}

active proctype First()
{
	byte phase;
	bool done;

end:	server != SERVER_PROPOSED && server != SERVER_LAPSED ->
	do
	:: phase = first;
		if
		:: phase == SHUFFLER_OPEN && now >= 1 -> goto expire
		:: phase == SHUFFLER_OPEN -> atomic { shuffler_receive(first, done) }
		:: phase == SHUFFLER_OPEN -> atomic { shuffler_close(first, done) }
		:: phase == SHUFFLER_OPEN || phase == SHUFFLER_CLOSED ->
abandon:		atomic { shuffler_abandon(first, done) }
		:: phase == SHUFFLER_CLOSED && now >= 1 -> goto expire
		:: phase == SHUFFLER_CLOSED && now < 1 ->
			atomic { shuffler_release(first, done); first_released = done }
		:: phase == SHUFFLER_CLOSED && now < 1 -> atomic { shuffler_reopen(first, done) }
		:: phase == SHUFFLER_RELEASED && now >= 1 ->
expire:			atomic { shuffler_expire(first, done) }
		:: phase == SHUFFLER_RELEASED && now < 1 ->
			/* Hand the batch on. */
			atomic {
				if
				:: second_accepted -> done = true
				:: else -> shuffler_accept(second, done); second_accepted = done
				fi
			}
			if
			:: done -> atomic { shuffler_forget(first, done) }
			:: true		/* the answer is lost */
			fi
		:: phase == SHUFFLER_ABANDONED ->
			publish(BY_SHUFFLER, done);
			if
			:: now < 4 -> atomic {
				shuffler_hear(second, done);
				if :: done -> heard = BY_SHUFFLER :: else -> skip fi }
			:: else -> skip
			fi;
			if
			:: atomic { shuffler_tell(first, done) }
			:: true
			fi
		:: phase == SHUFFLER_DELIVERED || phase == SHUFFLER_ENDED -> break
		fi
	od
}

active proctype Second()
{
	byte phase, outcome;
	bool done;

end:	server != SERVER_PROPOSED && server != SERVER_LAPSED ->
	do
	:: phase = second;
		if
		:: phase == SHUFFLER_OPEN && now >= 1 -> atomic { shuffler_expire(second, done) }
		:: phase == SHUFFLER_CLOSED -> atomic { shuffler_expire(second, done) }	/* too few traps */
		:: phase == SHUFFLER_CLOSED && now < 2 ->
			atomic {
				assert(first_released);
				shuffler_release(second, done)
			}
		:: phase == SHUFFLER_RELEASED && now >= 2 -> atomic { shuffler_expire(second, done) }
		:: phase == SHUFFLER_RELEASED && now < 2 ->
			atomic {
				if
				:: server_accepted -> done = true
				:: else -> server_accept(server, done); server_accepted = done
				fi
			}
			if
			:: done -> atomic { shuffler_forget(second, done) }
			:: true
			fi
		:: phase == SHUFFLER_ABANDONED ->
			outcome = (heard -> heard : BY_SHUFFLER + 1);
			publish(outcome, done);
			if
			:: now < 4 -> atomic {
				server_abandon(server, done);
				if :: done -> stored = outcome :: else -> skip fi }
			:: else -> skip
			fi;
			if
			:: atomic { shuffler_tell(second, done) }
			:: true
			fi
		:: phase == SHUFFLER_DELIVERED || phase == SHUFFLER_ENDED -> break
		:: phase == SHUFFLER_OPEN && now < 1 -> skip
		fi
	od
}

active proctype Server()
{
	byte phase, outcome, on_board;
	bool done;

	do
	:: phase = server;
		if
		:: phase == SERVER_PROPOSED -> atomic { server_agree(server, done) }
		:: phase == SERVER_PROPOSED && now >= 1 -> atomic { server_lapse(server, done) }
		:: phase == SERVER_AWAITING && now < 2 -> skip
		:: phase == SERVER_AWAITING && now >= 2 -> atomic {
			server_abandon(server, done);
			if :: done -> stored = BY_SERVER :: else -> skip fi }
		:: phase == SERVER_BATCHED && has_key && now < 3 -> atomic {
			server_answer(server, done);
			if :: done -> stored = ANSWERED :: else -> skip fi }
		:: phase == SERVER_BATCHED && has_key -> atomic {
			server_refuse(server, done);
			if :: done -> stored = REFUSED :: else -> skip fi }
		:: phase == SERVER_BATCHED && !has_key -> goto lose
		:: phase == SERVER_ANSWERED && has_key -> atomic { has_key = false }	/* the disk loses it */
		:: phase == SERVER_ANSWERED && !has_key ->
			on_board = shown;
#ifndef LOSE_WITHOUT_ASKING
			if
			:: on_board == ANSWERED -> atomic { server_publish(server, done) }
			:: on_board != 0 && on_board != ANSWERED -> atomic { server_yield(server, done) }
			:: on_board == 0 -> goto lose
			fi
#else
			goto lose
#endif
		:: (phase == SERVER_ANSWERED && has_key) || phase == SERVER_REFUSED || phase == SERVER_ABANDONED ->
			outcome = stored;
			publish(outcome, done);
			if
			:: done -> atomic { server_publish(server, done) }
			:: !done -> atomic { server_yield(server, done) }
			:: true		/* the answer is lost */
			fi
		:: phase == SERVER_PUBLISHED || phase == SERVER_OVERTAKEN || phase == SERVER_LAPSED -> break
		:: false ->
lose:			atomic {
				server_lose(server, done);
				if :: done -> stored = BY_SERVER :: else -> skip fi }
		fi;
		/* What a batch is here for is not thrown away while its key is there. */
		assert(!(server_accepted && has_key && server == SERVER_ABANDONED));
		/* The server never signs an outcome against its own bulletin on the board. */
		assert(!(shown == ANSWERED && server == SERVER_ABANDONED))
	od
}

/* When nothing moves any more, the board has an outcome, and every role agrees with it. */
active proctype End()
{
	timeout ->
	if
	:: server == SERVER_LAPSED -> assert(shown == 0)	/* the round never opened */
	:: else ->
		assert(shown != 0);
		assert((server == SERVER_PUBLISHED) == (shown == stored));
		assert(server == SERVER_PUBLISHED || server == SERVER_OVERTAKEN);
		assert(first == SHUFFLER_DELIVERED || first == SHUFFLER_ENDED);
		assert(second == SHUFFLER_DELIVERED || second == SHUFFLER_ENDED)
	fi
}
