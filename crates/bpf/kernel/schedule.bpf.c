/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Where the scheduler's time goes, by control group of version 2's tree: how long threads were on a CPU, how
 * long they waited for one, and how often they lost it.
 *
 * A thread waits from when it is made runnable (woken, new, or taken off its CPU while it could go on) until
 * it is on a CPU, as the kernel's own schedstat counts. It counts for the group that it was in when that
 * began. A group's integrals need nobody to look at each thread: of an interval, the begin is subtracted
 * from the integral when it begins, and the end is added when it ends. So, with n threads in an interval,
 * the integral is short of n times the present, and n follows from that (see src/schedule/integral.rs).
 *
 * Not every switch is seen: a program does not run within itself, and a kernel may hide what some processes do. What
 * comes next shows that one is missing. It is counted as lost, and what is known is put right, so that no
 * thread waits or runs forever.
 */
#include "kernel.h"

/*
 * What is added to the kernel's clock, set when the programs are loaded: times begin long before that, so that n
 * can be told from what is added between two looks, and not with the machine, since a sum of many late times is
 * more than a word holds.
 */
const volatile u64 offset_ns = 0;
/* Bins are an eighth of a doubling; the last begins at 70 minutes. */
#define BINS_LOG2 3
#define BINS 320
#define MOST_GROUPS 4096
#define MOST_THREADS 65536

enum state { UNKNOWN, ASLEEP, WAITING, ON_CPU };

struct thread {
	/* When it began to wait. */
	u64 since;
	/* For which group that counts; 0: for none. */
	u64 group;
	u64 state;
	/* Its CPU time when it was last seen to leave a CPU. */
	u64 ran;
};

struct group {
	/* Integrals in ns of the threads on a CPU, and of those that wait for one. */
	u64 on_cpu;
	u64 queued;
	/* Waits that have ended: how many, in ns, and by their length. */
	u64 waits;
	u64 waited;
	u64 involuntary;
	u32 bins[BINS];
};

/* What a CPU does. */
struct cpu {
	/* For which group it counts; 0: nothing that counts. */
	u64 group;
	/* Who has it; 0: nobody. */
	u64 thread;
	/* Since when. */
	u64 since;
	/* Whether anything was seen there yet. */
	u64 known;
	/* Runs of the programs. */
	u64 events;
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, MOST_GROUPS);
	TYPE(key, u64);
	TYPE(value, struct group);
} groups SECTION(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, MOST_THREADS);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SECTION(".maps");

struct {
	NUMBER(type, MAP_PER_CPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct cpu);
} cpus SECTION(".maps");

/* A group without anything: too large for the stack. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct group);
} blank SECTION(".maps");

/* Events without a place for their thread or group, and switches that went unseen. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} lost SECTION(".maps");

static const u32 FIRST = 0;

INLINE void lose(void)
{
	u64 *count = map_lookup(&lost, &FIRST);

	if (count)
		add(count, 1);
}

INLINE u64 present(void)
{
	return monotonic_ns() + offset_ns;
}

INLINE u64 group_of(struct task_struct *task)
{
	return task->cgroups->dfl_cgrp->kn->id;
}

/* The group by its id; made if it is new. */
INLINE struct group *group(u64 id)
{
	struct group *found = map_lookup(&groups, &id), *empty;

	if (found)
		return found;
	empty = map_lookup(&blank, &FIRST);
	/* Another CPU may just have made it. */
	if (empty)
		map_update(&groups, &id, empty, UPDATE_IF_ABSENT);
	found = map_lookup(&groups, &id);
	if (!found)
		lose();
	return found;
}

/* As group(), where one group is at hand: mostly it is the same. */
INLINE struct group *group_beside(u64 id, struct group *hand, u64 hand_id)
{
	return hand && id == hand_id ? hand : group(id);
}

INLINE struct thread *thread(u32 id)
{
	struct thread *found = map_lookup(&threads, &id);
	struct thread unknown = {};

	if (found)
		return found;
	map_update(&threads, &id, &unknown, UPDATE_IF_ABSENT);
	found = map_lookup(&threads, &id);
	if (!found)
		lose();
	return found;
}

/* The bin of a time: of its leading bit, and the three that follow. */
INLINE u32 bin(u64 value)
{
	u64 rest = value;
	u32 log2 = 0, bin;

	if (value < (1 << BINS_LOG2))
		return value;
#define HALVE(bits)              \
	if (rest >> bits) {      \
		rest >>= bits;   \
		log2 += bits;    \
	}
	HALVE(32) HALVE(16) HALVE(8) HALVE(4) HALVE(2) HALVE(1)
	log2 -= BINS_LOG2;
	bin = ((log2 + 1) << BINS_LOG2) + ((value >> log2) & ((1 << BINS_LOG2) - 1));
	return bin < BINS ? bin : BINS - 1;
}

INLINE void begin_wait(struct thread *of, u64 id, u64 now)
{
	struct group *counted = group(id);

	if (counted)
		add(&counted->queued, -now);
	of->group = counted ? id : 0;
	of->since = now;
	of->state = WAITING;
}

INLINE void end_wait(struct thread *of, u64 now, struct group *hand, u64 hand_id)
{
	struct group *counted = of->group ? group_beside(of->group, hand, hand_id) : 0;
	u64 waited = now > of->since ? now - of->since : 0;
	u32 index;

	of->state = ON_CPU;
	if (!counted)
		return;
	add(&counted->queued, now);
	add(&counted->waits, 1);
	add(&counted->waited, waited);
	index = bin(waited);
	if (index < BINS)
		__sync_fetch_and_add(&counted->bins[index], 1);
}

/* A thread has the CPU from now on. */
INLINE void take_cpu(struct cpu *cpu, u32 id, u64 group_id, u64 now, struct group *hand, u64 hand_id)
{
	struct group *counted = group_beside(group_id, hand, hand_id);

	if (counted)
		add(&counted->on_cpu, -now);
	cpu->group = counted ? group_id : 0;
	cpu->thread = id;
	cpu->since = now;
}

/* Whoever had the CPU has it no longer; gives its group, if that is known. */
INLINE struct group *leave_cpu(struct cpu *cpu, u64 now)
{
	struct group *counted = cpu->group ? map_lookup(&groups, &cpu->group) : 0;

	if (counted)
		add(&counted->on_cpu, now);
	cpu->group = 0;
	cpu->thread = 0;
	cpu->since = now;
	return counted;
}

/*
 * A CPU is someone else's than was seen. A thread came as long ago as it has run since it was seen last. When the
 * CPU went idle is not known: whoever was there before has not run at all.
 */
INLINE void catch_up(struct cpu *cpu, struct task_struct *task, u64 now)
{
	u64 before = cpu->thread, passed = now - cpu->since, ran;
	u32 id = task->pid, left_id = before;
	struct thread *left, *of;

	if (!cpu->known) {
		cpu->known = 1;
		passed = 0;
	} else {
		lose();
		left = before ? map_lookup(&threads, &left_id) : 0;
		/* It may be on another CPU's way to sleep or to wait. */
		if (left)
			__sync_val_compare_and_swap(&left->state, ON_CPU, UNKNOWN);
	}
	if (!id) {
		leave_cpu(cpu, now - passed);
		return;
	}
	of = thread(id);
	ran = of ? task->se.sum_exec_runtime - of->ran : 0;
	if (ran < passed)
		passed = ran;
	leave_cpu(cpu, now - passed);
	take_cpu(cpu, id, group_of(task), now - passed, 0, 0);
	if (of && of->state == WAITING)
		end_wait(of, now - passed, 0, 0);
	if (of)
		of->state = ON_CPU;
}

SECTION("tp_btf/sched_switch")
int switched(u64 *context)
{
	u64 preempted = context[0] & 1;
	struct task_struct *previous = (void *)context[1];
	struct task_struct *next = (void *)context[2];
	struct cpu *cpu = map_lookup(&cpus, &FIRST);
	struct group *left;
	struct thread *of;
	u64 now = present(), left_id;
	u32 id, state;

	if (!cpu)
		return 0;
	id = previous->pid;
	if (cpu->thread != id || !cpu->known)
		catch_up(cpu, previous, now);
	cpu->events++;
	left_id = cpu->group;
	left = leave_cpu(cpu, now);
	if (id) {
		state = previous->__state;
		of = thread(id);
		/* It came unseen: a wait that stayed open would count for ever. */
		if (of && of->state == WAITING)
			end_wait(of, now, left, left_id);
		if (preempted || state == TASK_RUNNING) {
			if (left)
				add(&left->involuntary, 1);
			if (of) {
				of->ran = previous->se.sum_exec_runtime;
				begin_wait(of, group_of(previous), now);
			}
		} else if (state & TASK_DEAD) {
			map_delete(&threads, &id);
		} else if (of) {
			of->ran = previous->se.sum_exec_runtime;
			of->state = ASLEEP;
		}
	}
	id = next->pid;
	if (id) {
		of = thread(id);
		if (of) {
			if (of->state == WAITING)
				end_wait(of, now, left, left_id);
			of->state = ON_CPU;
		}
		take_cpu(cpu, id, group_of(next), now, left, left_id);
	}
	return 0;
}

INLINE int woken(struct task_struct *task)
{
	struct thread *of = thread(task->pid);
	struct cpu *cpu = map_lookup(&cpus, &FIRST);

	if (cpu)
		cpu->events++;
	/* One that is awake is woken, too, when it was about to sleep. */
	if (of && (of->state == ASLEEP || (of->state == UNKNOWN && !task->on_cpu)))
		begin_wait(of, group_of(task), present());
	return 0;
}

SECTION("tp_btf/sched_wakeup")
int woke(u64 *context)
{
	return woken((void *)context[0]);
}

SECTION("tp_btf/sched_wakeup_new")
int began(u64 *context)
{
	return woken((void *)context[0]);
}

/*
 * Run on each CPU before a look: what it does counts although it never switches, from the first look
 * on, and for the group that a thread has joined meanwhile.
 */
SECTION("raw_tp")
int refresh(void)
{
	struct task_struct *task = current_task();
	struct cpu *cpu = map_lookup(&cpus, &FIRST);
	u64 now = present(), id;
	u32 pid;

	if (!cpu)
		return 0;
	pid = task->pid;
	if (cpu->thread != pid || !cpu->known) {
		catch_up(cpu, task, now);
		return 0;
	}
	if (!pid)
		return 0;
	id = group_of(task);
	if (cpu->group == id)
		return 0;
	leave_cpu(cpu, now);
	take_cpu(cpu, pid, id, now, 0, 0);
	return 0;
}

/* The kernel shows its types to programs under its own licence alone, which this one may be used under. */
char licence[] SECTION("license") = "GPL and additional rights";
