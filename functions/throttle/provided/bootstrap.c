/*
 * Watches the monotonic clock in a busy loop; where it jumps, this process did not run.
 *
 * A runtime of its own, for platforms that start an executable `bootstrap` and speak Lambda's Runtime
 * API (HTTP, given by AWS_LAMBDA_RUNTIME_API): events in, answers out, nothing else. It is one static
 * file that needs nothing of the system it runs on.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define MOST_JUMPS 200000
#define LONGEST_ID 256

typedef struct {
    char *text;
    size_t length, room;
} Text;

typedef struct {
    int64_t time, gap;
} Jump;

static Jump *jumps;

static void die(const char *what)
{
    fprintf(stderr, "bootstrap: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void reserve(Text *text, size_t more)
{
    if (text->length + more + 1 <= text->room)
        return;
    text->room = (text->length + more + 1) * 2;
    text->text = realloc(text->text, text->room);
    if (text->text == NULL)
        die("memory");
}

static void add(Text *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int needed = vsnprintf(NULL, 0, format, values);
    va_end(values);
    reserve(text, (size_t)needed);
    va_start(values, format);
    vsnprintf(text->text + text->length, (size_t)needed + 1, format, values);
    va_end(values);
    text->length += (size_t)needed;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * NS_PER_S + time.tv_nsec;
}

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

static const char *skip(const char *at, const char *any)
{
    return at + strspn(at, any);
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
static bool answer(const char *event, const char *instance, bool fresh, Text *to)
{
    int64_t cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID), began = read_clock(CLOCK_REALTIME);
    int64_t duration = NS_PER_S, threshold = 500000, start, end, turns;
    const char *wrong = NULL;
    if (!parameter(event, "duration", 1e6, 1e6, 600e9, &duration))
        wrong = "duration: not a number of ms between 1 and 600000";
    if (!parameter(event, "threshold", 1e3, 10e3, 1e9, &threshold))
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
    add(to, "], \"fresh\": %s, \"instance\": \"%s\", \"handler_start_ns\": %" PRId64,
        fresh ? "true" : "false", instance, began);
    add(to, ", \"handler_end_ns\": %" PRId64 ", \"cpu_ns\": %" PRId64 ", \"valid\": %s}}",
        read_clock(CLOCK_REALTIME), read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu,
        valid ? "true" : "false");
    return true;
}

/* Sends a request to the Runtime API, a connection for each, and reads all of the answer. */
static void ask(const struct sockaddr_in *api, const Text *request, Text *to)
{
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (const struct sockaddr *)api, sizeof *api) != 0)
        die("the Runtime API");
    for (size_t sent = 0; sent < request->length;) {
        ssize_t more = send(connection, request->text + sent, request->length - sent, MSG_NOSIGNAL);
        if (more < 0)
            die("the Runtime API");
        sent += (size_t)more;
    }
    to->length = 0;
    for (;;) {
        reserve(to, 65536);
        ssize_t more = recv(connection, to->text + to->length, 65536, 0);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            die("the Runtime API");
        if (more == 0)
            break;
        to->length += (size_t)more;
    }
    to->text[to->length] = '\0';
    close(connection);
}

/* The value of a header of an answer, copied; empty if there is none. */
static void header(const char *answer, const char *name, char value[LONGEST_ID])
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = answer; line != NULL; line = strstr(line, "\r\n")) {
        line += *line == '\r' ? 2 : 0;
        if (*line == '\r')
            return;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *at = skip(line + length + 1, " ");
            size_t end = strcspn(at, "\r\n");
            if (end < LONGEST_ID)
                snprintf(value, LONGEST_ID, "%.*s", (int)end, at);
            return;
        }
    }
}

static struct sockaddr_in runtime_api(void)
{
    const char *given = getenv("AWS_LAMBDA_RUNTIME_API");
    char host[64] = "";
    unsigned port = 0;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (given == NULL || sscanf(given, "%63[^:]:%u", host, &port) != 2 || port > 65535 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        errno = EINVAL;
        die("AWS_LAMBDA_RUNTIME_API is no address:port");
    }
    address.sin_port = htons((uint16_t)port);
    return address;
}

int main(void)
{
    const char *prefix = "/2018-06-01/runtime/invocation/";
    struct sockaddr_in api = runtime_api();
    unsigned char random[8];
    char instance[17], id[LONGEST_ID];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        die("random numbers");
    for (int i = 0; i < 8; i++)
        snprintf(instance + 2 * i, 3, "%02x", random[i]);
    /* All its pages are there before the first event, so that none is fetched in the loop. */
    jumps = malloc(MOST_JUMPS * sizeof *jumps);
    if (jumps == NULL)
        die("memory");
    memset(jumps, 1, MOST_JUMPS * sizeof *jumps);
    Text request = {0}, reply = {0}, body = {0};
    for (bool fresh = true;; fresh = false) {
        request.length = 0;
        add(&request, "GET %snext HTTP/1.1\r\nHost: runtime\r\nConnection: close\r\n\r\n", prefix);
        ask(&api, &request, &reply);
        header(reply.text, "Lambda-Runtime-Aws-Request-Id", id);
        const char *event = strstr(reply.text, "\r\n\r\n");
        if (event == NULL || id[0] == '\0') {
            errno = EPROTO;
            die("the Runtime API gave no event");
        }
        body.length = 0;
        bool ok = answer(event, instance, fresh, &body);
        request.length = 0;
        add(&request, "POST %s%s/%s HTTP/1.1\r\nHost: runtime\r\nConnection: close\r\n", prefix, id,
            ok ? "response" : "error");
        add(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body.length);
        reserve(&request, body.length);
        memcpy(request.text + request.length, body.text, body.length);
        request.length += body.length;
        ask(&api, &request, &reply);
    }
}
