/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the programs take of the kernel: its types as far as they are read, the calls that it offers, and
 * the form of maps. Offsets of fields are those of the kernel that runs, by its BTF (CO-RE).
 */
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* Fields of a map's definition: the loader reads them from the types. */
#define NUMBER(field, value) int (*field)[value]
#define TYPE(field, type) type *field

#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PER_CPU_ARRAY 6

#define UPDATE_IF_ABSENT 1

#define TASK_RUNNING 0
#define TASK_DEAD 0x80

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	unsigned int __state;
	int on_cpu;
	int pid;
	struct sched_entity se;
	struct css_set *cgroups;
};

#pragma clang attribute pop

/* Numbers of linux/bpf.h. */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const monotonic_ns)(void) = (void *)5;
static struct task_struct *(*const current_task)(void) = (void *)158;

INLINE void add(u64 *place, u64 value)
{
	__sync_fetch_and_add(place, value);
}
