/* Holds memory and runs threads, phase by phase, as a row of a trace says. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "uncia_runtime.h"

#define MOST_PHASES 1000
#define MOST_DURATION (900 * NS_PER_S)
#define MOST_THREADS 256
#define MOST_MEMORY (10240LL << 20)
#define ADDITIONS_PER_READ 20000

typedef struct {
    int64_t duration, threads, memory;
} Phase;

typedef struct {
    int64_t wall, cpu, resident;
} Measured;

typedef struct {
    int64_t target, used;
} Burn;

static Phase phases[MOST_PHASES];
static Measured measured[MOST_PHASES];

/* Room for the most memory, of which the first `held` bytes are in use. They stay until a phase holds less. */
static char *region;
static int64_t held, page;

/* Bytes of this process that are in memory. */
static int64_t resident(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return held;
    if (fscanf(file, "%*d %lld", &pages) != 1)
        pages = held / page;
    fclose(file);
    return pages * page;
}

/* Brings the process to `size` bytes, as far as what it holds on purpose allows. */
static void hold(int64_t size)
{
    int64_t others = resident() - held;
    int64_t wanted = size > others ? (size - others) / page * page : 0;
    if (wanted < held && madvise(region + wanted, (size_t)(held - wanted), MADV_DONTNEED) != 0)
        die("memory");
    for (int64_t at = held; at < wanted; at += page)
        region[at] = 1;
    held = wanted;
}

/* Adds until this thread's CPU clock is at the target; a new thread's begins at 0. */
static void *burn(void *argument)
{
    Burn *mine = argument;
    volatile uint64_t sum = 0;
    while ((mine->used = read_clock(CLOCK_THREAD_CPUTIME_ID)) < mine->target)
        for (int i = 0; i < ADDITIONS_PER_READ; i++)
            sum += (uint64_t)i;
    return NULL;
}

/* Waits until the monotonic clock is there. */
static void sleep_until(int64_t end)
{
    struct timespec until = {end / NS_PER_S, end % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Carries out a phase; false if a thread had too little CPU time, or could not be started.
 *
 * This thread is the first of the phase: it takes the memory, and the CPU time for that is part of
 * what the phase asks of it. What it has used beyond that, as in a phase that sleeps, is `ahead`, and
 * counts in the next phase. */
static bool run(const Phase *phase, Measured *took, int64_t *ahead)
{
    static pthread_t threads[MOST_THREADS];
    static Burn burns[MOST_THREADS];
    int64_t begin = read_clock(CLOCK_MONOTONIC);
    int64_t before = read_clock(CLOCK_THREAD_CPUTIME_ID);
    int64_t asked = phase->threads > 0 ? phase->duration : 0;
    int64_t started = 1;
    for (; started < phase->threads; started++) {
        burns[started] = (Burn){phase->duration, 0};
        if (pthread_create(&threads[started], NULL, burn, &burns[started]) != 0)
            break;
    }
    bool valid = started >= phase->threads;
    hold(phase->memory);
    took->resident = resident();
    Burn mine = {before + asked - *ahead, 0};
    burn(&mine);
    if (phase->threads == 0)
        sleep_until(begin + phase->duration);
    took->cpu = read_clock(CLOCK_THREAD_CPUTIME_ID) - before;
    *ahead += took->cpu - asked;
    for (int64_t i = 1; i < started; i++) {
        pthread_join(threads[i], NULL);
        took->cpu += burns[i].used;
        valid = valid && burns[i].used >= phase->duration;
    }
    took->wall = read_clock(CLOCK_MONOTONIC) - begin;
    return valid;
}

/* Behind what separates values; quotes may be escaped, as the event may be text in an HTTP request. */
static const char *separated(const char *at)
{
    return skip(at, "\\\" \t\r\n");
}

/* Reads a value of a phase; NULL if there is none that is allowed. */
static const char *read_value(const char *at, Phase *phase, int *seen)
{
    const struct {
        const char *name;
        int64_t *value, most;
    } keys[] = {{"duration", &phase->duration, MOST_DURATION},
                {"threads", &phase->threads, MOST_THREADS},
                {"memory", &phase->memory, MOST_MEMORY}};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(keys[i].name);
        if (strncmp(at, keys[i].name, length) != 0)
            continue;
        at = separated(at + length);
        if (*at != ':')
            return NULL;
        at = separated(at + 1);
        char *rest;
        errno = 0;
        long long value = strtoll(at, &rest, 10);
        if (rest == at || errno != 0 || strchr(".eE", *rest) != NULL || value < 0 ||
            value > keys[i].most || (*seen & 1 << i) != 0)
            return NULL;
        *keys[i].value = value;
        *seen |= 1 << i;
        return separated(rest);
    }
    return NULL;
}

/* The phases of an event; their number, 0 if they are none. */
static int read_phases(const char *event)
{
    const char *at = strstr(event, "phases");
    if (at == NULL) {
        phases[0] = (Phase){50000000, 1, 64 << 20};
        return 1;
    }
    at = separated(at + strlen("phases"));
    if (*at++ != ':')
        return 0;
    at = separated(at);
    if (*at++ != '[')
        return 0;
    for (int count = 0; count < MOST_PHASES;) {
        int seen = 0;
        at = separated(at);
        if (*at++ != '{')
            return 0;
        do {
            at = read_value(separated(at), &phases[count], &seen);
        } while (at != NULL && *at++ == ',');
        if (at == NULL || at[-1] != '}' || seen != 7)
            return 0;
        count++;
        at = separated(at);
        if (*at == ']')
            return count;
        if (*at++ != ',')
            return 0;
    }
    return 0;
}

static bool answer(const Invocation *invocation, Text *to)
{
    int count = read_phases(invocation->event);
    if (count == 0) {
        add(to, "{\"errorType\": \"ValueError\", \"errorMessage\": \"phases: not a list of 1 to 1000"
                " phases with duration (0 to 900 s in ns), threads (0 to 256) and memory (0 to 10 GB"
                " in bytes)\"}");
        return false;
    }
    bool valid = true;
    int64_t ahead = 0;
    for (int i = 0; i < count; i++)
        valid = run(&phases[i], &measured[i], &ahead) && valid;
    add(to, "{\"measured\": [");
    for (int i = 0; i < count; i++)
        add(to, "%s{\"wall_ns\": %" PRId64 ", \"cpu_ns\": %" PRId64 ", \"resident_bytes\": %" PRId64 "}",
            i ? ", " : "", measured[i].wall, measured[i].cpu, measured[i].resident);
    add(to, "], \"parameters\": {\"phases\": [");
    for (int i = 0; i < count; i++)
        add(to, "%s{\"duration\": %" PRId64 ", \"threads\": %" PRId64 ", \"memory\": %" PRId64 "}",
            i ? ", " : "", phases[i].duration, phases[i].threads, phases[i].memory);
    add(to, "]}, \"uncia\": {");
    add_envelope(to, invocation, valid);
    return true;
}

int main(void)
{
    page = sysconf(_SC_PAGESIZE);
    region = mmap(NULL, MOST_MEMORY, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        die("memory");
    serve(answer);
}
