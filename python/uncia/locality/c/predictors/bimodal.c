/* Counters of two bits, chosen by the branch's address (J. E. Smith: A Study of Branch Prediction Strategies, 1981). */
#include <string.h>

#include "../predictor.h"

struct bimodal {
    uint8_t counters[1 << 17];
};

static void clear(void *state)
{
    memset(state, WEAKLY_TAKEN, sizeof(struct bimodal));
}

static inline bool step(struct bimodal *tables, uint64_t address, bool taken, unsigned bits)
{
    uint8_t *counter = &tables->counters[address & ((1u << bits) - 1)];
    bool prediction = *counter >= 2;
    count_taken(counter, taken);
    return prediction;
}

#define STEP_4KB(tables, address, taken) step(tables, address, taken, 14)
#define STEP_32KB(tables, address, taken) step(tables, address, taken, 17)
DEFINE_RUN(run_4kb, struct bimodal, STEP_4KB)
DEFINE_RUN(run_32kb, struct bimodal, STEP_32KB)

static const struct predictor small = {"bimodal-4KB", 4 << 10, sizeof(struct bimodal), clear, run_4kb};
static const struct predictor large = {"bimodal-32KB", 32 << 10, sizeof(struct bimodal), clear, run_32kb};
const struct predictor *const bimodal[] = {&small, &large, NULL};
