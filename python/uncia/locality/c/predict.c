/* Runs every predictor on traces of branches: see words.h.
 *
 *     predict INTERVAL FD...        counts of each trace, read from these descriptors
 *     predict models                each predictor's name, and the bytes of its tables
 *     predict predictions MODEL     each prediction for the trace on standard input, as 0 or 1
 *
 * Traces take turns, a part each: the starts of all, then the first invocation of each, and so on. Each predictor is
 * there several times: one that a trace has alone and keeps, one that it has alone and that is cleared before each
 * invocation, and, with several traces, one that all share. A line of the counts, each since the line before of the
 * same trace, has: trace, model, state (0 kept, 1 cleared, 2 shared), part, instructions of the trace so far,
 * instructions, repetitions, branches, mispredicted. A line is due every INTERVAL instructions and after each part.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor.h"
#include "words.h"

#define READ_WORDS 8192
#define STATES 3
enum { KEPT, CLEARED, SHARED };

/* The build names the files of the folder predictors: -DPREDICTORS="EACH(bimodal) EACH(gshare)". */
#define EACH(NAME) extern const struct predictor *const NAME[];
PREDICTORS
#undef EACH
#define EACH(NAME) NAME,
static const struct predictor *const *const FILES[] = {PREDICTORS};
#undef EACH

static const struct predictor *models[64];
static size_t count_of_models;

struct trace {
    int descriptor;
    bool is_over;
    uint64_t moved; /* added to addresses where a predictor is shared */
    uint64_t words[READ_WORDS];
    size_t filled, at;
    size_t partial; /* bytes of a word that is not whole yet */
    uint64_t part, so_far;
    uint64_t instructions, repetitions, branches;
    void *states[64][STATES];
    uint64_t mispredicted[64][STATES];
};

static void fail(const char *message)
{
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static void *made(const struct predictor *model)
{
    void *state = malloc(model->size);
    if (state == NULL)
        fail("there is no memory for predictors");
    model->clear(state);
    return state;
}

static void list_models(void)
{
    for (size_t file = 0; file < sizeof FILES / sizeof *FILES; file++)
        for (size_t each = 0; FILES[file][each] != NULL; each++) {
            if (count_of_models == sizeof models / sizeof *models)
                fail("there are too many predictors");
            models[count_of_models++] = FILES[file][each];
        }
}

/* Reads more words; false at the end of the trace. */
static bool fill(struct trace *trace)
{
    char *bytes = (char *)trace->words;
    size_t have = 0;
    memmove(bytes, bytes + trace->filled * sizeof *trace->words, trace->partial);
    have = trace->partial;
    while (have < sizeof *trace->words) {
        ssize_t got = read(trace->descriptor, bytes + have, sizeof trace->words - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail("a trace cannot be read");
        if (got == 0) {
            if (have > 0)
                fail("a trace ends within a word");
            return false;
        }
        have += got;
    }
    trace->filled = have / sizeof *trace->words;
    trace->partial = have % sizeof *trace->words;
    trace->at = 0;
    return true;
}

static void print_counts(struct trace *trace, size_t number, bool is_shared)
{
    for (size_t model = 0; model < count_of_models; model++)
        for (int state = 0; state < STATES; state++) {
            /* Before the first invocation nothing is cleared. */
            if ((state == CLEARED && trace->part == 0) || (state == SHARED && !is_shared))
                continue;
            printf("%zu %zu %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", number,
                   model, state, trace->part, trace->so_far, trace->instructions, trace->repetitions, trace->branches,
                   trace->mispredicted[model][state]);
        }
    trace->instructions = trace->repetitions = trace->branches = 0;
    memset(trace->mispredicted, 0, sizeof trace->mispredicted);
}

static void learn(struct trace *trace, void **shared, uint64_t *branches, size_t count)
{
    trace->branches += count;
    for (size_t each = 0; each < count_of_models; each++) {
        const struct predictor *model = models[each];
        uint64_t *mispredicted = trace->mispredicted[each];
        mispredicted[KEPT] += model->run(trace->states[each][KEPT], branches, count, NULL);
        if (trace->part > 0)
            mispredicted[CLEARED] += model->run(trace->states[each][CLEARED], branches, count, NULL);
    }
    if (shared == NULL)
        return;
    for (size_t at = 0; at < count; at++)
        branches[at] = (branches[at] + trace->moved) & BRANCH_MASK;
    for (size_t each = 0; each < count_of_models; each++)
        trace->mispredicted[each][SHARED] += models[each]->run(shared[each], branches, count, NULL);
}

/* Reads a trace to the end of its part. */
static void take_part(struct trace *trace, size_t number, void **shared, uint64_t interval)
{
    static uint64_t branches[READ_WORDS];
    for (;;) {
        if (trace->at == trace->filled && !fill(trace)) {
            trace->is_over = true;
            break;
        }
        size_t count = 0;
        bool is_whole = false;
        while (trace->at < trace->filled && !is_whole) {
            uint64_t word = trace->words[trace->at++];
            uint64_t address = (word & BRANCH_MASK) >> 1;
            if (address == REPEATED) {
                trace->repetitions += word >> COUNT_SHIFT;
                continue;
            }
            trace->instructions += word >> COUNT_SHIFT;
            trace->so_far += word >> COUNT_SHIFT;
            is_whole = address == PART;
            if (address >= PAGE)
                branches[count++] = word & BRANCH_MASK;
        }
        learn(trace, shared, branches, count);
        if (is_whole)
            break;
        if (trace->instructions >= interval)
            print_counts(trace, number, shared != NULL);
    }
    if (trace->instructions > 0 || trace->branches > 0)
        print_counts(trace, number, shared != NULL);
    trace->part++;
    for (size_t each = 0; each < count_of_models; each++)
        models[each]->clear(trace->states[each][CLEARED]);
}

static void print_predictions(const char *name)
{
    const struct predictor *model = NULL;
    for (size_t each = 0; each < count_of_models; each++)
        if (strcmp(models[each]->name, name) == 0)
            model = models[each];
    if (model == NULL)
        fail("there is no such predictor");
    void *state = made(model);
    uint64_t word;
    while (fread(&word, sizeof word, 1, stdin) == 1) {
        uint64_t branch = word & BRANCH_MASK;
        uint8_t predicted;
        if (branch >> 1 < PAGE)
            continue;
        model->run(state, &branch, 1, &predicted);
        putchar('0' + predicted);
    }
    putchar('\n');
}

static void print_all_counts(uint64_t interval, size_t count, char **descriptors)
{
    struct trace *traces = calloc(count, sizeof *traces);
    void *shared[64];
    if (traces == NULL)
        fail("there is no memory for traces");
    for (size_t model = 0; model < count_of_models; model++)
        shared[model] = count > 1 ? made(models[model]) : NULL;
    for (size_t each = 0; each < count; each++) {
        traces[each].descriptor = atoi(descriptors[each]);
        /* As the kernel's randomisation of addresses does: by pages, far from each other (Fibonacci hashing). */
        traces[each].moved = (each * 0x9e3779b97f4a7c15ull >> 36) * PAGE << 1;
        for (size_t model = 0; model < count_of_models; model++) {
            traces[each].states[model][KEPT] = made(models[model]);
            traces[each].states[model][CLEARED] = made(models[model]);
        }
    }
    for (size_t open = count; open > 0;)
        for (size_t each = 0; each < count; each++) {
            if (traces[each].is_over)
                continue;
            take_part(&traces[each], each, count > 1 ? shared : NULL, interval);
            open -= traces[each].is_over;
        }
}

int main(int argc, char **argv)
{
    list_models();
    if (argc == 2 && strcmp(argv[1], "models") == 0) {
        for (size_t each = 0; each < count_of_models; each++)
            printf("%s %" PRIu64 "\n", models[each]->name, models[each]->bytes);
    } else if (argc == 3 && strcmp(argv[1], "predictions") == 0) {
        print_predictions(argv[2]);
    } else if (argc > 2 && strtoull(argv[1], NULL, 10) > 0) {
        print_all_counts(strtoull(argv[1], NULL, 10), argc - 2, argv + 2);
    } else {
        fail("usage: predict INTERVAL FD... | models | predictions MODEL");
    }
    if (fflush(stdout) != 0)
        fail("counts cannot be written");
    return 0;
}
