/*
 * Answers at once: what is left of its latency is the platform's.
 */

#define _GNU_SOURCE

#include "uncia_runtime.h"

static bool answer(const Invocation *invocation, Text *to)
{
    add(to, "{\"message\": \"hello\", \"uncia\": {");
    add_envelope(to, invocation, true);
    return true;
}

int main(void)
{
    serve(answer);
}
