/*
 * What the catalogue's functions with a runtime of their own share: text that grows, and Lambda's Runtime
 * API (HTTP, given by AWS_LAMBDA_RUNTIME_API): events in, answers out, nothing else. Included by each function's
 * one C file, so that it is compiled to one static file that needs nothing of the system it runs on.
 */

#ifndef UNCIA_RUNTIME_H
#define UNCIA_RUNTIME_H

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
#define LONGEST_ID 256

typedef struct {
    char *text;
    size_t length, room;
} Text;

/* An event, the instance that it came to, and the clocks when it came, in ns. */
typedef struct {
    const char *event, *instance;
    bool fresh;
    int64_t start, cpu;
} Invocation;

/* Writes the answer to an event; false if it is an error. */
typedef bool Answer(const Invocation *invocation, Text *to);

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

/* Writes what every answer has at its end under the key `uncia`, behind what is there already, and closes both. */
static void add_envelope(Text *to, const Invocation *invocation, bool valid)
{
    add(to, "\"fresh\": %s, \"instance\": \"%s\", \"handler_start_ns\": %" PRId64,
        invocation->fresh ? "true" : "false", invocation->instance, invocation->start);
    add(to, ", \"handler_end_ns\": %" PRId64 ", \"cpu_ns\": %" PRId64 ", \"valid\": %s}}",
        read_clock(CLOCK_REALTIME), read_clock(CLOCK_PROCESS_CPUTIME_ID) - invocation->cpu,
        valid ? "true" : "false");
}

static const char *skip(const char *at, const char *any)
{
    return at + strspn(at, any);
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

/* Answers one event after the other. */
static _Noreturn void serve(Answer *answer)
{
    const char *prefix = "/2018-06-01/runtime/invocation/";
    struct sockaddr_in api = runtime_api();
    unsigned char random[8];
    char instance[17], id[LONGEST_ID];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        die("random numbers");
    for (int i = 0; i < 8; i++)
        snprintf(instance + 2 * i, 3, "%02x", random[i]);
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
        Invocation invocation = {event, instance, fresh, read_clock(CLOCK_REALTIME),
                                 read_clock(CLOCK_PROCESS_CPUTIME_ID)};
        bool ok = answer(&invocation, &body);
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

#endif
