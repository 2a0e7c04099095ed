/*
 * Watches the monotonic clock in a busy loop; where it jumps, this process did not run.
 */

#define _GNU_SOURCE

#include "uncia_runtime.h"

#define MOST_JUMPS 200000

typedef struct {
    int64_t time, gap;
} Jump;

static Jump *jumps;

/* What to add to the monotonic clock for Unix time; the closest of some pairs of readings. */
static int64_t unix_offset(void)
{
    int64_t least = INT64_MAX, offset = 0;
    for (int i = 0; i < 8; i++) {
        int64_t before = read_clock(CLOCK_MONOTONIC);
        int64_t now = read_clock(CLOCK_REALTIME);
        int64_t after = read_clock(CLOCK_MONOTONIC);
        if (after - before < least) {
            least = after - before;
            offset = now - (before + (after - before) / 2);
        }
    }
    return offset;
}

/* Algorithm 1. Gives the number of jumps, -1 if there were more than there is room for. */
static long watch(int64_t duration, int64_t threshold, int64_t *start, int64_t *end, int64_t *turns)
{
    long count = 0;
    int64_t last = *start = read_clock(CLOCK_MONOTONIC);
    for (*turns = 1;; ++*turns) {
        int64_t now = read_clock(CLOCK_MONOTONIC);
        if (now - last >= threshold) {
            if (count == MOST_JUMPS)
                return -1;
            jumps[count++] = (Jump){now, now - last};
        }
        last = now;
        if (now - *start >= duration) {
            *end = now;
            return count;
        }
    }
}

/*
 * The number under a key of the event, in ns; it is in units of `unit` ns unless it is text with a
 * unit of its own ("50ms"). The event may be text in the body of an HTTP request, its quotes escaped.
 * False if it is no number within bounds.
 */
static bool parameter(const char *event, const char *key, double unit, double low, double high,
                      int64_t *value)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"min", 60e9}, {"s", 1e9}};
    const char *at = strstr(event, key);
    if (at == NULL)
        return true;
    at = skip(at + strlen(key), "\\\" \t\r\n");
    if (*at++ != ':')
        return false;
    at = skip(at, "\\\" \t\r\n");
    char *rest;
    double number = strtod(at, &rest);
    if (rest == at)
        return false;
    at = skip(rest, " ");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strncmp(at, units[i].name, strlen(units[i].name)) == 0) {
            unit = units[i].ns;
            break;
        }
    number *= unit;
    if (!(number >= low && number <= high))
        return false;
    *value = (int64_t)(number + 0.5);
    return true;
}

/* The answer to an event; false if it is an error. */
static bool answer(const Invocation *invocation, Text *to)
{
    int64_t duration = NS_PER_S, threshold = 500000, start, end, turns;
    const char *wrong = NULL;
    if (!parameter(invocation->event, "duration", 1e6, 1e6, 600e9, &duration))
        wrong = "duration: not a number of ms between 1 and 600000";
    if (!parameter(invocation->event, "threshold", 1e3, 10e3, 1e9, &threshold))
        wrong = "threshold: not a number of us between 10 and 1000000";
    long count = wrong == NULL ? watch(duration, threshold, &start, &end, &turns) : 0;
    if (count < 0)
        wrong = "more than 200000 jumps: raise the threshold";
    if (wrong != NULL) {
        add(to, "{\"errorType\": \"ValueError\", \"errorMessage\": \"%s\"}", wrong);
        return false;
    }
    int64_t offset = unix_offset();
    bool valid = true;
    add(to, "{\"data\": [");
    for (long i = 0; i < count; i++) {
        add(to, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", jumps[i].time, jumps[i].gap);
        valid = valid && jumps[i].time - jumps[i].gap >= start && jumps[i].time <= end;
    }
    add(to, "], \"t0\": %" PRId64 ", \"end_ns\": %" PRId64 ", \"iteration_counter\": %" PRId64, start,
        end, turns);
    add(to, ", \"parameters\": {\"duration\": %.17g, \"threshold\": %.17g}", (double)duration / 1e6,
        (double)threshold / 1e3);
    add(to, ", \"uncia\": {\"spans\": [[\"probe\", %" PRId64 ", %" PRId64 "]", start + offset,
        end + offset);
    for (long i = 0; i < count; i++)
        add(to, ", [\"throttle\", %" PRId64 ", %" PRId64 "]", jumps[i].time - jumps[i].gap + offset,
            jumps[i].time + offset);
    add(to, "], ");
    add_envelope(to, invocation, valid);
    return true;
}

int main(void)
{
    /* All its pages are there before the first event, so that none is fetched in the loop. */
    jumps = malloc(MOST_JUMPS * sizeof *jumps);
    if (jumps == NULL)
        die("memory");
    memset(jumps, 1, MOST_JUMPS * sizeof *jumps);
    serve(answer);
}
