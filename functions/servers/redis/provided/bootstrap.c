/* A Redis server, which is started before the first event, and redis-benchmark, which each event runs on it. */

#define _GNU_SOURCE
#include <sys/un.h>
#include <sys/wait.h>

#include "uncia_parameters.h"

#define PROGRAM "/usr/bin/redis-server"
#define SOCKET "/tmp/redis.sock"
#define ENTRIES 600
#define NS_PER_MS 1000000
#define LONGEST_START (20 * NS_PER_S)

static const char *const COMMANDS[] = {"set", "lrange"};
enum { SET, LRANGE };

/* A connection to the server; -1 if it does not listen. */
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

/* The number that a command in one line is answered with, or the length of the list; -1 if it fails. */
static long long ask_redis(const char *line)
{
    char reply[64];
    int connection = reach();
    ssize_t length = 0;
    if (connection >= 0 && send(connection, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line))
        length = recv(connection, reply, sizeof reply - 1, 0);
    if (connection >= 0)
        close(connection);
    if (length <= 0)
        return -1;
    reply[length] = '\0';
    return strchr(":*", reply[0]) != NULL ? strtoll(reply + 1, NULL, 10) : -1;
}

/* Starts the server, and waits until it answers; with the list that is read. */
static void start(void)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        execl(PROGRAM, PROGRAM, "--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no",
              "--daemonize", "no", "--dir", "/tmp", "--logfile", "/dev/null", (char *)NULL);
        die(PROGRAM);
    }
    int64_t until = read_clock(CLOCK_MONOTONIC) + LONGEST_START;
    while (ask_redis("DBSIZE\r\n") < 0) {
        if (waitpid(child, NULL, WNOHANG) == child || read_clock(CLOCK_MONOTONIC) > until) {
            errno = ECONNREFUSED;
            die("redis-server does not answer");
        }
        nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
    }
    for (int i = 0; i < ENTRIES; i++)
        if (ask_redis("LPUSH list 0123456789012345678901234567890123456789012345678901234567890123\r\n") != i + 1)
            die("redis-server does not keep a list");
}

/* Runs redis-benchmark; how many commands a second it says that there were, 0 if it failed. */
static double run(int command, int64_t repeat, int64_t clients)
{
    static const char *const options[] = {"-t set -d 1024 -r 50000", "lrange list 0 599"};
    char line[512], name[64];
    double rate = 0;
    snprintf(line, sizeof line, "exec redis-benchmark -s " SOCKET " --csv -n %" PRId64 " -c %" PRId64 " %s", repeat,
             clients, options[command]);
    FILE *output = popen(line, "r");
    if (output == NULL)
        die("redis-benchmark");
    /* The first line names the columns. */
    bool has_rate = fgets(line, sizeof line, output) != NULL && fgets(line, sizeof line, output) != NULL &&
                    sscanf(line, "\"%63[^\"]\",\"%lf\"", name, &rate) == 2;
    while (fgets(line, sizeof line, output) != NULL)
        ;
    return pclose(output) == 0 && has_rate ? rate : 0;
}

static bool refuse(Text *to, const char *why)
{
    add(to, "{\"errorMessage\": \"%s\", \"errorType\": \"ValueError\"}", why);
    return false;
}

static bool answer(const Invocation *invocation, Text *to)
{
    int64_t repeat = 1000, clients = 50;
    int command = SET;
    if (!word(invocation->event, "operation", COMMANDS, 2, &command))
        return refuse(to, "operation: not set or lrange");
    if (!whole(invocation->event, "repeat", 1, 10000000, &repeat))
        return refuse(to, "repeat: not a whole number between 1 and 10000000");
    if (!whole(invocation->event, "clients", 1, 1000, &clients))
        return refuse(to, "clients: not a whole number between 1 and 1000");
    double rate = run(command, repeat, clients);
    long long left = command == SET ? ask_redis("DBSIZE\r\n") : ask_redis("LRANGE list 0 599\r\n");
    bool valid = rate > 0 && (command == SET ? left > 1 : left == ENTRIES);
    add(to, "{\"carried_out\": %" PRId64 ", \"per_second\": %.2f, \"parameters\": {", repeat, rate);
    add(to, "\"operation\": \"%s\", \"clients\": %" PRId64 "}, \"uncia\": {", COMMANDS[command], clients);
    add_envelope(to, invocation, valid);
    return true;
}

int main(void)
{
    start();
    serve(answer);
}
