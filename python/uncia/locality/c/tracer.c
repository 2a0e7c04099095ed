/* A plugin of QEMU's user mode that writes a program's conditional branches to a file descriptor: see words.h.
 *
 *     qemu-x86_64 -plugin tracer.so,trace=FD PROGRAM < EVENTS > ANSWERS
 *
 * A part of the trace ends when the program reads its standard input after it has written to what was its standard
 * output: a function that was loaded, or has answered, then takes its next event.
 *
 * Each thread has a buffer, which is written when it is full, so that threads share a predictor as they would share
 * a CPU. Processes that the program forks are not traced.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qemu.h"
#include "words.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST_THREADS 4096
#define BUFFERED 8192
/* Above what programs use, so that they have the descriptors that they have elsewhere. */
#define LEAST_DESCRIPTOR 900

EXPORT int qemu_plugin_version = 1;

/* A block of instructions that QEMU has translated; 0 where there is no such address. */
struct block {
    uint64_t start;
    uint64_t instructions;
    uint64_t branch;       /* of the conditional branch at its end */
    uint64_t fall_through; /* after that */
    uint64_t repeated;     /* of the instruction with `rep` at its end */
};

struct thread {
    uint64_t branch; /* executed, and it is not known yet whether it was taken */
    uint64_t fall_through;
    uint64_t repeated;
    uint64_t instructions; /* since the last word */
    uint64_t repetitions;
    size_t used;
    uint64_t words[BUFFERED];
};

static struct thread *threads[MOST_THREADS];
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static pid_t traced;
static struct stat events, answers;
static bool has_answered;

static void fail(const char *message)
{
    fprintf(stderr, "uncia's tracer: %s\n", message);
    _exit(70);
}

static void write_out(struct thread *thread)
{
    const char *from = (const char *)thread->words;
    size_t left = thread->used * sizeof *thread->words;
    thread->used = 0;
    if (getpid() != traced) /* a fork, which has this buffer a second time */
        return;
    pthread_mutex_lock(&output);
    while (left > 0) {
        ssize_t written = write(trace, from, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            fail("the trace cannot be written");
        from += written;
        left -= written;
    }
    pthread_mutex_unlock(&output);
}

static inline void put(struct thread *thread, uint64_t word)
{
    thread->words[thread->used++] = word;
    if (thread->used == BUFFERED)
        write_out(thread);
}

static uint64_t put_counts(struct thread *thread, uint64_t count, uint64_t kind)
{
    for (; count > MOST_COUNT; count -= MOST_COUNT)
        put(thread, MOST_COUNT << COUNT_SHIFT | kind << 1);
    return count;
}

static void flush(struct thread *thread, bool ends_part)
{
    uint64_t rest = put_counts(thread, thread->repetitions, REPEATED);
    put(thread, rest << COUNT_SHIFT | REPEATED << 1);
    rest = put_counts(thread, thread->instructions, NOTHING);
    put(thread, rest << COUNT_SHIFT | (ends_part ? PART : NOTHING) << 1);
    thread->instructions = thread->repetitions = 0;
    write_out(thread);
}

static void executed(unsigned int vcpu, void *data)
{
    const struct block *block = data;
    struct thread *thread = threads[vcpu];
    if (thread->branch) {
        uint64_t is_taken = block->start != thread->fall_through;
        if (thread->instructions > MOST_COUNT)
            thread->instructions = put_counts(thread, thread->instructions, NOTHING);
        put(thread, thread->instructions << COUNT_SHIFT | thread->branch << 1 | is_taken);
        thread->instructions = 0;
    }
    /* QEMU leaves and enters an instruction with `rep` for each repetition. It is executed once. */
    if (thread->repeated == block->start)
        thread->repetitions++;
    else
        thread->instructions += block->instructions;
    thread->repeated = block->repeated;
    thread->branch = block->branch;
    thread->fall_through = block->fall_through;
}

/* The number of an x86 instruction's prefixes; has_rep says whether `rep` or `repne` is one of them. */
static size_t prefixes(const uint8_t *code, size_t size, bool *has_rep)
{
    size_t at = 0;
    for (; at < size; at++) {
        uint8_t byte = code[at];
        if (byte == 0xf2 || byte == 0xf3)
            *has_rep = true;
        else if (byte != 0x2e && byte != 0x3e && byte != 0x26 && byte != 0x36 && byte != 0x64 && byte != 0x65 &&
                 byte != 0x66 && byte != 0x67 && (byte & 0xf0) != 0x40)
            break;
    }
    return at;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *code)
{
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(code);
    struct block *block = calloc(1, sizeof *block);
    if (block == NULL)
        fail("there is no memory");
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(code, count - 1);
    block->start = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(code, 0));
    block->instructions = count;
    const uint8_t *bytes = qemu_plugin_insn_data(last);
    size_t size = qemu_plugin_insn_size(last);
    uint64_t address = qemu_plugin_insn_vaddr(last);
    bool has_rep = false;
    size_t at = prefixes(bytes, size, &has_rep);
    uint8_t first = at < size ? bytes[at] : 0;
    uint8_t second = at + 1 < size ? bytes[at + 1] : 0;
    /* Jcc in both forms; LOOP, LOOPcc and JRCXZ. */
    if ((first & 0xf0) == 0x70 || (first & 0xfc) == 0xe0 || (first == 0x0f && (second & 0xf0) == 0x80)) {
        block->branch = address;
        block->fall_through = address + size;
    }
    /* INS, OUTS, MOVS, CMPS, STOS, LODS, SCAS. */
    if (has_rep && ((first & 0xfc) == 0x6c || (first & 0xfc) == 0xa4 || (first >= 0xaa && first <= 0xaf)))
        block->repeated = address;
    qemu_plugin_register_vcpu_tb_exec_cb(code, executed, QEMU_PLUGIN_CB_NO_REGS, block);
}

static bool is_file(uint64_t descriptor, const struct stat *file)
{
    struct stat status;
    return fstat((int)descriptor, &status) == 0 && status.st_ino == file->st_ino && status.st_dev == file->st_dev;
}

static void called(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    enum { READ = 0, WRITE = 1, READV = 19, WRITEV = 20 }; /* of x86-64 */
    if ((number == WRITE || number == WRITEV) && is_file(a1, &answers)) {
        has_answered = true;
    } else if ((number == READ || number == READV) && has_answered && is_file(a1, &events)) {
        has_answered = false;
        flush(threads[vcpu], true);
    }
}

static void began(qemu_plugin_id_t id, unsigned int vcpu)
{
    (void)id;
    if (vcpu >= MOST_THREADS)
        fail("the program has too many threads");
    /* A number is given again when its thread has ended. */
    if (threads[vcpu] == NULL)
        threads[vcpu] = malloc(sizeof *threads[vcpu]);
    if (threads[vcpu] == NULL)
        fail("there is no memory");
    memset(threads[vcpu], 0, offsetof(struct thread, words));
}

static void thread_ended(qemu_plugin_id_t id, unsigned int vcpu)
{
    (void)id;
    flush(threads[vcpu], false);
}

static void ended(qemu_plugin_id_t id, void *data)
{
    (void)id, (void)data;
    for (size_t each = 0; each < MOST_THREADS; each++)
        if (threads[each] != NULL)
            flush(threads[each], false);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    if (strcmp(info->target_name, "x86_64") != 0) {
        fprintf(stderr, "uncia's tracer knows the branches of x86_64, not of %s\n", info->target_name);
        return -1;
    }
    int given = argc == 1 && strncmp(argv[0], "trace=", 6) == 0 ? atoi(argv[0] + 6) : -1;
    trace = given < 0 ? -1 : fcntl(given, F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR);
    if (trace < 0) {
        fprintf(stderr, "uncia's tracer is given no descriptor to write to: trace=FD\n");
        return -1;
    }
    close(given);
    traced = getpid();
    if (fstat(0, &events) != 0 || fstat(1, &answers) != 0) {
        fprintf(stderr, "uncia's tracer: the program has no standard input or output\n");
        return -1;
    }
    qemu_plugin_register_vcpu_init_cb(id, began);
    qemu_plugin_register_vcpu_exit_cb(id, thread_ended);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
