/* A runtime for images in tests: static, so that it needs nothing of the root that it is in. Answers every
 * event with a JSON object: its arguments, folder and environment, and what the file that ROOT_FILE names
 * holds; the event as it came. With PORT it serves HTTP there, and answers every request with that file. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buffer[1 << 20];

static char *ask(const char *request, size_t length) {
    char host[64] = "";
    int port = 0;
    sscanf(getenv("AWS_LAMBDA_RUNTIME_API"), "%63[^:]:%d", host, &port);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) != 0) exit(3);
    if (write(connection, request, length) != (ssize_t)length) exit(4);
    size_t filled = 0;
    ssize_t count;
    while ((count = read(connection, buffer + filled, sizeof buffer - filled - 1)) > 0) filled += count;
    buffer[filled] = 0;
    close(connection);
    return buffer;
}

static void read_text(const char *path, char *text, size_t size) {
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t count = file ? fread(text, 1, size - 1, file) : 0;
    text[count] = 0;
    if (file) fclose(file);
    for (char *end = text + count; end > text && end[-1] == '\n'; *--end = 0) {
    }
}

static void serve(const char *text) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("PORT")))};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) exit(5);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (read(connection, buffer, sizeof buffer) > 0)
            dprintf(connection,
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                    strlen(text), text);
        close(connection);
    }
}

int main(int count, char **arguments) {
    static char answer[1 << 16], request[1 << 17], text[1 << 12], folder[1 << 12];
    read_text(getenv("ROOT_FILE"), text, sizeof text);
    if (getenv("PORT")) serve(text);
    for (;;) {
        const char *next =
            "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nConnection: close\r\n\r\n";
        char *event = ask(next, strlen(next));
        char *body = strstr(event, "\r\n\r\n") + 4, id[64] = "";
        sscanf(strstr(event, "Lambda-Runtime-Aws-Request-Id: "),
               "Lambda-Runtime-Aws-Request-Id: %63s", id);
        const char *colour = getenv("COLOUR"), *handler = getenv("_HANDLER");
        int length = snprintf(
            answer, sizeof answer,
            "{\"program\": \"%s\", \"argument\": \"%s\", \"folder\": \"%s\", \"file\": \"%s\","
            " \"colour\": \"%s\", \"handler\": \"%s\", \"event\": %s}",
            arguments[0], count > 1 ? arguments[1] : "", getcwd(folder, sizeof folder), text,
            colour ? colour : "", handler ? handler : "", body);
        length = snprintf(request, sizeof request,
                          "POST /2018-06-01/runtime/invocation/%s/response HTTP/1.1\r\n"
                          "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                          id, length, answer);
        ask(request, length);
    }
}
