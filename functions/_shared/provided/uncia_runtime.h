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

/* Whether a checkpoint may be made of this process: restored from it, it finds its connection closed. */
static bool is_restorable(void)
{
    const char *kind = getenv("AWS_LAMBDA_INITIALIZATION_TYPE");
    return kind != NULL && strcmp(kind, "snap-start") == 0;
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
        if (more < 0 && !is_restorable())
            die("the Runtime API");
        if (more <= 0)
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

/* Reads a text of JSON, behind its first quote, in place; returns what is behind it. */
static char *unquote(char *at)
{
    char *to = at;
    for (; *at != '"' && *at != '\0'; at++) {
        unsigned code;
        if (*at != '\\') {
            *to++ = *at;
        } else if (*++at == 'u' && sscanf(at + 1, "%4x", &code) == 1) {
            /* Of those below a blank alone: all others are written as they are. */
            *to++ = (char)code;
            at += 4;
        } else {
            const char *names = "nrtbf", *name = strchr(names, *at);
            *to++ = name != NULL && *name != '\0' ? "\n\r\t\b\f"[name - names] : *at;
        }
    }
    char *behind = *at == '\0' ? at : at + 1;
    *to = '\0';
    return behind;
}

/* Gives an instance its name. */
static void name_instance(char instance[17])
{
    unsigned char random[8];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        die("random numbers");
    for (int i = 0; i < 8; i++)
        snprintf(instance + 2 * i, 3, "%02x", random[i]);
}

/* The environment as it was given, NAME=VALUE each and null at the end. */
static char **given;

/* Keeps it, before anything of the function's changes it. */
__attribute__((constructor)) static void keep_environment(void)
{
    extern char **environ;
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    given = calloc(count + 1, sizeof *given);
    if (given == NULL)
        die("memory");
    memcpy(given, environ, count * sizeof *given);
}

/* The value that a list has for the name that an entry begins with; null if it has none. */
static const char *variable_of(char **list, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    for (; *list != NULL; list++)
        if (strncmp(*list, entry, length) == 0)
            return *list + length;
    return NULL;
}

/* Takes over what differs between the environment that was given and another: all else is the function's. */
static void take_environment(char **other)
{
    for (char **entry = given; *entry != NULL; entry++) {
        if (variable_of(other, *entry) == NULL) {
            Text name = {0};
            add(&name, "%.*s", (int)strcspn(*entry, "="), *entry);
            unsetenv(name.text);
            free(name.text);
        }
    }
    for (char **entry = other; *entry != NULL; entry++) {
        const char *before = variable_of(given, *entry), *value = variable_of(other, *entry);
        if (before == NULL || strcmp(before, value) != 0)
            putenv(*entry);
    }
    given = other;
}

/* Becomes the instance that a restored process is: with its environment, and another name. */
static void become(const struct sockaddr_in *api, char instance[17])
{
    Text request = {0}, reply = {0};
    add(&request, "GET /2018-06-01/runtime/restore/next HTTP/1.1\r\nHost: runtime\r\nConnection: close\r\n\r\n");
    ask(api, &request, &reply);
    char *at = strstr(reply.text, "\r\n\r\n{");
    if (at == NULL || reply.text[reply.length - 1] != '}') {
        errno = EPROTO;
        die("the Runtime API gave no environment");
    }
    char **other = calloc(1, sizeof *other);
    size_t count = 0;
    for (at = strchr(at, '"'); at != NULL; at = strchr(at, '"')) {
        char *name = at + 1, *value = strchr(unquote(name), '"');
        if (value == NULL)
            break;
        at = unquote(++value);
        Text entry = {0};
        add(&entry, "%s=%s", name, value);
        other = realloc(other, (count + 2) * sizeof *other);
        if (other == NULL)
            die("memory");
        other[count++] = entry.text;
        other[count] = NULL;
    }
    take_environment(other);
    /* Of an invocation of the other instance's. */
    unsetenv("_X_AMZN_TRACE_ID");
    free(request.text);
    free(reply.text);
    name_instance(instance);
}

/* Answers one event after the other. */
static _Noreturn void serve(Answer *answer)
{
    const char *prefix = "/2018-06-01/runtime/invocation/";
    struct sockaddr_in api = runtime_api();
    char instance[17], id[LONGEST_ID], trace[LONGEST_ID];
    name_instance(instance);
    Text request = {0}, reply = {0}, body = {0};
    for (bool fresh = true;; fresh = false) {
        request.length = 0;
        add(&request, "GET %snext HTTP/1.1\r\nHost: runtime\r\nConnection: close\r\n\r\n", prefix);
        ask(&api, &request, &reply);
        if (reply.length == 0 && is_restorable()) {
            become(&api, instance);
            ask(&api, &request, &reply);
            fresh = true;
        }
        header(reply.text, "Lambda-Runtime-Aws-Request-Id", id);
        const char *event = strstr(reply.text, "\r\n\r\n");
        if (event == NULL || id[0] == '\0') {
            errno = EPROTO;
            die("the Runtime API gave no event");
        }
        header(reply.text, "Lambda-Runtime-Trace-Id", trace);
        if (trace[0] != '\0')
            setenv("_X_AMZN_TRACE_ID", trace, 1);
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
        if (reply.length == 0 && is_restorable())
            become(&api, instance);
    }
}

#endif
