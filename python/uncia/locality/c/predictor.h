/* A predictor of conditional branches. A file of the folder predictors defines those of its name:
 *
 *     static const struct predictor first = {"NAME-4KB", ...};
 *     const struct predictor *const NAME[] = {&first, ..., NULL};
 */
#ifndef PREDICTOR_H
#define PREDICTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct predictor {
    const char *name;
    uint64_t bytes; /* of its tables, as hardware would have them */
    size_t size;    /* of its state here */

    /* Makes the state that it begins with. */
    void (*clear)(void *state);

    /* Predicts branches (address << 1 | taken) one after the other, and learns from each. Returns how many it
     * mispredicts; `predicted` is given each prediction unless it is NULL. */
    uint64_t (*run)(void *state, const uint64_t *branches, size_t count, uint8_t *predicted);
};

/* Defines `run` of `bool STEP(STATE *state, uint64_t address, bool taken)`, which predicts, then learns. */
#define DEFINE_RUN(NAME, STATE, STEP)                                                                        \
    static uint64_t NAME(void *state, const uint64_t *branches, size_t count, uint8_t *predicted)            \
    {                                                                                                        \
        STATE *tables = state;                                                                               \
        uint64_t mispredicted = 0;                                                                           \
        for (size_t at = 0; at < count; at++) {                                                              \
            bool taken = branches[at] & 1;                                                                   \
            bool prediction = STEP(tables, branches[at] >> 1, taken);                                        \
            mispredicted += prediction != taken;                                                             \
            if (predicted != NULL)                                                                           \
                predicted[at] = prediction;                                                                  \
        }                                                                                                    \
        return mispredicted;                                                                                 \
    }

/* A counter of two bits: taken from 2 on, saturating at 0 and 3. */
static inline void count_taken(uint8_t *counter, bool taken)
{
    *counter = taken ? (*counter < 3 ? *counter + 1 : 3) : (*counter > 0 ? *counter - 1 : 0);
}

#define WEAKLY_TAKEN 2

#endif
