/* Moves bytes through memory with so many threads, or computes as often in registers. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "uncia_parameters.h"

#define MOST_THREADS 64
#define BYTES_A_STEP 24 /* two loads and a store of eight */
#define SCALAR 3

static const char *const KINDS[] = {"memory", "registers"};

typedef struct {
    bool in_memory, valid;
    int64_t steps, length;
    uint64_t *a, *b, *c;
} Stream;

/* a = b + 3 c, again and again. Whatever the turn, it comes to the same, which is checked. */
static bool triad(const Stream *mine)
{
    for (int64_t left = mine->steps; left > 0; left -= mine->length) {
        int64_t length = left < mine->length ? left : mine->length;
        uint64_t *restrict a = mine->a;
        const uint64_t *restrict b = mine->b, *restrict c = mine->c;
        for (int64_t i = 0; i < length; i++)
            a[i] = b[i] + SCALAR * c[i];
        /* The next turn is not left out because it does the same. */
        __asm__ volatile("" : : "r"(mine->a) : "memory");
    }
    int64_t written = mine->steps < mine->length ? mine->steps : mine->length;
    for (int64_t i = 0; i < written; i += 4097)
        if (mine->a[i] != (uint64_t)i + SCALAR * (uint64_t)(i ^ 5))
            return false;
    return true;
}

/* As many steps of a linear congruential generator, whose end is known from jumping ahead. */
static bool generate(int64_t steps)
{
    const uint64_t multiplier = 6364136223846793005u, increment = 1442695040888963407u;
    uint64_t state = 1;
    for (int64_t i = 0; i < steps; i++) {
        state = state * multiplier + increment;
        __asm__ volatile("" : "+r"(state));
    }
    uint64_t factor = multiplier, add = increment, all = 1, sum = 0;
    for (uint64_t left = (uint64_t)steps; left > 0; left >>= 1) {
        if (left & 1) {
            all *= factor;
            sum = sum * factor + add;
        }
        add *= factor + 1;
        factor *= factor;
    }
    return state == all + sum;
}

static void *work(void *argument)
{
    Stream *mine = argument;
    mine->valid = mine->in_memory ? triad(mine) : generate(mine->steps);
    return NULL;
}

static uint64_t *array(int64_t length)
{
    void *made = mmap(NULL, (size_t)length * 8, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

/* Arrays stay for the next event of the same size. */
static bool prepare(Stream *stream, int64_t length)
{
    if (stream->length == length)
        return true;
    uint64_t **arrays[] = {&stream->a, &stream->b, &stream->c};
    for (int i = 0; i < 3; i++) {
        if (*arrays[i] != NULL)
            munmap(*arrays[i], (size_t)stream->length * 8);
        *arrays[i] = array(length);
    }
    stream->length = 0;
    if (stream->a == NULL || stream->b == NULL || stream->c == NULL) {
        for (int i = 0; i < 3; i++) {
            if (*arrays[i] != NULL)
                munmap(*arrays[i], (size_t)length * 8);
            *arrays[i] = NULL;
        }
        return false;
    }
    for (int64_t i = 0; i < length; i++) {
        stream->b[i] = (uint64_t)i;
        stream->c[i] = (uint64_t)(i ^ 5);
    }
    stream->length = length;
    return true;
}

static bool refuse(Text *to, const char *message)
{
    add(to, "{\"errorType\": \"ValueError\", \"errorMessage\": \"%s\"}", message);
    return false;
}

static bool answer(const Invocation *invocation, Text *to)
{
    static Stream streams[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    int64_t count = 1, traffic = 256 << 20, size = 16 << 20;
    int kind = 0, started = 0;
    if (!whole(invocation->event, "threads", 1, MOST_THREADS, &count))
        return refuse(to, "threads: not a whole number between 1 and 64");
    if (!word(invocation->event, "kind", KINDS, 2, &kind))
        return refuse(to, "kind: not memory or registers");
    if (!whole(invocation->event, "traffic", 1 << 20, 64LL << 30, &traffic))
        return refuse(to, "traffic: not a whole number of B between 1 MB and 64 GB");
    if (!whole(invocation->event, "array", 1 << 20, 1 << 30, &size))
        return refuse(to, "array: not a whole number of B between 1 MB and 1 GB");
    for (int i = 0; i < count; i++) {
        streams[i].in_memory = kind == 0;
        streams[i].steps = traffic / BYTES_A_STEP;
        if (kind == 0 && !prepare(&streams[i], size / 8))
            return refuse(to, "array: there is not so much memory");
    }
    int64_t began = read_clock(CLOCK_REALTIME), begin = read_clock(CLOCK_MONOTONIC);
    for (; started < count - 1; started++)
        if (pthread_create(&threads[started], NULL, work, &streams[started + 1]) != 0)
            break;
    work(&streams[0]);
    bool valid = streams[0].valid && started == count - 1;
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        valid = valid && streams[i + 1].valid;
    }
    int64_t took = read_clock(CLOCK_MONOTONIC) - begin, steps = traffic / BYTES_A_STEP * count;
    double moved = kind == 0 ? (double)steps * BYTES_A_STEP / ((double)took / 1e9) : 0;
    add(to, "{\"steps\": %" PRId64 ", \"wall_ns\": %" PRId64 ", \"bytes_per_s\": %.0f", steps, took, moved);
    add(to, ", \"parameters\": {\"threads\": %" PRId64 ", \"kind\": \"%s\"", count, KINDS[kind]);
    add(to, ", \"traffic\": %" PRId64 ", \"array\": %" PRId64 "}, \"uncia\": {", traffic, size);
    add(to, "\"spans\": [[\"%s\", %" PRId64 ", %" PRId64 "]], ", KINDS[kind], began, began + took);
    add_envelope(to, invocation, valid);
    return true;
}

int main(void)
{
    serve(answer);
}
