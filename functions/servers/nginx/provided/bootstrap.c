/* Nginx, which is started before the first event and asked for a page by each. */

#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "uncia_runtime.h"

#define PROGRAM "/usr/sbin/nginx"
#define FOLDER "/tmp/nginx"
#define SOCKET FOLDER "/socket"
#define PAGE "hello from nginx"
#define NS_PER_MS 1000000
#define LONGEST_START (20 * NS_PER_S)

static const char CONFIGURATION[] = "daemon off;\n"
                                    "worker_processes 1;\n"
                                    "pid " FOLDER "/pid;\n"
                                    "error_log stderr error;\n"
                                    "events { worker_connections 64; }\n"
                                    "http {\n"
                                    "  access_log off;\n"
                                    "  client_body_temp_path " FOLDER "/body;\n"
                                    "  proxy_temp_path " FOLDER "/proxy;\n"
                                    "  fastcgi_temp_path " FOLDER "/fastcgi;\n"
                                    "  uwsgi_temp_path " FOLDER "/uwsgi;\n"
                                    "  scgi_temp_path " FOLDER "/scgi;\n"
                                    "  server {\n"
                                    "    listen unix:" SOCKET ";\n"
                                    "    location = /hello { return 200 \"" PAGE "\"; }\n"
                                    "    location / { return 404; }\n"
                                    "  }\n"
                                    "}\n";

/* A connection to Nginx; -1 if it does not listen. */
static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        die("a socket");
    if (connect(connection, (const struct sockaddr *)&address, sizeof address) == 0)
        return connection;
    close(connection);
    return -1;
}

/* Starts Nginx, and waits until it listens. */
static void start(void)
{
    if (mkdir(FOLDER, 0700) != 0)
        die(FOLDER);
    FILE *file = fopen(FOLDER "/nginx.conf", "w");
    if (file == NULL || fputs(CONFIGURATION, file) == EOF || fclose(file) != 0)
        die(FOLDER "/nginx.conf");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        execl(PROGRAM, PROGRAM, "-e", "stderr", "-p", FOLDER, "-c", FOLDER "/nginx.conf", (char *)NULL);
        die(PROGRAM);
    }
    int64_t until = read_clock(CLOCK_MONOTONIC) + LONGEST_START;
    int connection;
    while ((connection = reach()) < 0) {
        if (waitpid(child, NULL, WNOHANG) == child || read_clock(CLOCK_MONOTONIC) > until) {
            errno = ECONNREFUSED;
            die("nginx does not listen");
        }
        nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
    }
    close(connection);
}

static bool answer(const Invocation *invocation, Text *to)
{
    static const char request[] = "GET /hello HTTP/1.0\r\nHost: nginx\r\n\r\n";
    char page[4096];
    size_t length = 0;
    int status = 0;
    int connection = reach();
    if (connection >= 0 && send(connection, request, sizeof request - 1, MSG_NOSIGNAL) > 0)
        for (ssize_t more; length < sizeof page - 1 &&
                           (more = recv(connection, page + length, sizeof page - 1 - length, 0)) > 0;)
            length += (size_t)more;
    if (connection >= 0)
        close(connection);
    page[length] = '\0';
    const char *body = strstr(page, "\r\n\r\n");
    body = body == NULL ? "" : body + 4;
    sscanf(page, "HTTP/%*s %d", &status);
    add(to, "{\"status\": %d, \"bytes\": %zu, \"uncia\": {", status, strlen(body));
    add_envelope(to, invocation, strcmp(body, PAGE) == 0);
    return true;
}

int main(void)
{
    start();
    serve(answer);
}
