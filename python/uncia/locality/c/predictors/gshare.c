/* GShare (S. McFarling: Combining Branch Predictors, 1993): counters of two bits, chosen by the branch's address XOR
 * the outcomes of the last branches, as many as the index has bits. As the Championship Branch Prediction of 2016
 * has it: address and history are not shifted, and counters begin weakly taken.
 */
#include <string.h>

#include "../predictor.h"

struct gshare {
    uint64_t history;
    uint8_t counters[1 << 17];
};

static void clear(void *state)
{
    struct gshare *tables = state;
    tables->history = 0;
    memset(tables->counters, WEAKLY_TAKEN, sizeof tables->counters);
}

static inline bool step(struct gshare *tables, uint64_t address, bool taken, unsigned bits)
{
    uint64_t mask = (1u << bits) - 1;
    uint8_t *counter = &tables->counters[(address ^ tables->history) & mask];
    bool prediction = *counter >= 2;
    count_taken(counter, taken);
    tables->history = (tables->history << 1 | taken) & mask;
    return prediction;
}

#define STEP_4KB(tables, address, taken) step(tables, address, taken, 14)
#define STEP_32KB(tables, address, taken) step(tables, address, taken, 17)
DEFINE_RUN(run_4kb, struct gshare, STEP_4KB)
DEFINE_RUN(run_32kb, struct gshare, STEP_32KB)

static const struct predictor small = {"gshare-4KB", 4 << 10, sizeof(struct gshare), clear, run_4kb};
static const struct predictor large = {"gshare-32KB", 32 << 10, sizeof(struct gshare), clear, run_32kb};
const struct predictor *const gshare[] = {&small, &large, NULL};
