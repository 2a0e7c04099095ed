/* TAGE (A. Seznec, P. Michaud: A case for (partially) TAgged GEometric history length branch predictors, 2006): the
 * kind that today's processors have. A bimodal table, and seven tables chosen by ever longer histories, whose entries
 * have a tag; the longest that matches predicts. The lengths are the paper's for eight components. 4 KB for the
 * bimodal table and 7 x 4 KB: an entry has 11 bits of tag, 3 of a counter, 2 of usefulness. It has no path history.
 */
#include <string.h>

#include "../predictor.h"

#define TABLES 7
#define BASE_BITS 14
#define INDEX_BITS 11
#define TAG_BITS 11
#define OTHER_BITS 10         /* of the second history in a tag */
#define HISTORY 256           /* a power of 2 above the longest length */
#define AGEING (1u << 18)     /* branches after which usefulness fades */
static const unsigned LENGTHS[TABLES] = {5, 9, 15, 25, 44, 76, 130};

struct entry {
    int8_t counter; /* -4 to 3: taken from 0 on */
    uint8_t useful; /* 0 to 3 */
    uint16_t tag;
};

struct tage {
    uint8_t base[1 << BASE_BITS];
    struct entry entries[TABLES][1 << INDEX_BITS];
    /* One more than there are tables, for compilers that make vectors of them. */
    uint32_t index_fold[TABLES + 1], tag_fold[TABLES + 1], other_fold[TABLES + 1];
    uint8_t outcomes[HISTORY];
    uint32_t newest;
    int8_t trust_alternate; /* -8 to 7: from 0 on, where the longest match is new */
    uint32_t random;
    uint32_t branches;
};

static void clear(void *state)
{
    struct tage *tables = state;
    memset(tables, 0, sizeof *tables);
    memset(tables->base, WEAKLY_TAKEN, sizeof tables->base);
    tables->random = 1;
}

/* Where the oldest outcome of each length stands in a history folded to so many bits. */
#define OLDEST(BITS)                                                                                         \
    {1u << 5 % BITS, 1u << 9 % BITS, 1u << 15 % BITS, 1u << 25 % BITS, 1u << 44 % BITS, 1u << 76 % BITS,     \
     1u << 130 % BITS, 0}

/* Each history, folded to `bits` by XOR, with the newest outcome in and its oldest out. */
static inline void fold(uint32_t *folds, const uint32_t *places, unsigned bits, uint32_t newest, const uint32_t *leaves)
{
    for (unsigned each = 0; each < TABLES + 1; each++) {
        uint32_t folded = (folds[each] << 1 | newest) ^ (leaves[each] & places[each]);
        folds[each] = (folded ^ folded >> bits) & ((1u << bits) - 1);
    }
}

static inline void remember(struct tage *tables, bool taken)
{
    static const uint32_t index_places[] = OLDEST(INDEX_BITS), tag_places[] = OLDEST(TAG_BITS);
    static const uint32_t other_places[] = OLDEST(OTHER_BITS);
    uint32_t leaves[TABLES + 1] = {0}; /* all bits where the oldest outcome was a jump */
    tables->newest = (tables->newest - 1) & (HISTORY - 1);
    tables->outcomes[tables->newest] = taken;
    for (unsigned each = 0; each < TABLES; each++)
        leaves[each] = -(uint32_t)tables->outcomes[(tables->newest + LENGTHS[each]) & (HISTORY - 1)];
    fold(tables->index_fold, index_places, INDEX_BITS, taken, leaves);
    fold(tables->tag_fold, tag_places, TAG_BITS, taken, leaves);
    fold(tables->other_fold, other_places, OTHER_BITS, taken, leaves);
}

/* Bits of a linear feedback shift register, so that the same trace has the same predictions. */
static inline uint32_t draw(struct tage *tables)
{
    tables->random = tables->random >> 1 ^ (-(tables->random & 1u) & 0xd0000001u);
    return tables->random;
}

static void allocate(struct tage *tables, struct entry **matched, const uint16_t *tags, int above, bool taken)
{
    int chosen = -1;
    for (int each = above; each < TABLES; each++) {
        if (matched[each]->useful != 0)
            continue;
        /* The shorter of two lengths twice as often as the longer. */
        if (chosen < 0 || draw(tables) % 3 == 0)
            chosen = each;
        if (chosen < each)
            break;
    }
    if (chosen >= 0) {
        *matched[chosen] = (struct entry){taken ? 0 : -1, 0, tags[chosen]};
        return;
    }
    for (int each = above; each < TABLES; each++)
        matched[each]->useful--;
}

static void age(struct tage *tables)
{
    /* One bit of the two each time, the high one first. */
    uint8_t kept = tables->branches / AGEING & 1 ? 1 : 2;
    for (unsigned table = 0; table < TABLES; table++)
        for (unsigned each = 0; each < 1u << INDEX_BITS; each++)
            tables->entries[table][each].useful &= kept;
}

static inline bool step(struct tage *tables, uint64_t address, bool taken)
{
    struct entry *entries[TABLES];
    uint16_t tags[TABLES];
    int longest = -1, next = -1;
    uint32_t low = (uint32_t)(address ^ address >> INDEX_BITS);
#pragma GCC unroll 7
    for (int each = 0; each < TABLES; each++) {
        uint32_t index = (low ^ low >> (each + 1) ^ tables->index_fold[each]) & ((1u << INDEX_BITS) - 1);
        tags[each] = (address ^ tables->tag_fold[each] ^ tables->other_fold[each] << 1) & ((1u << TAG_BITS) - 1);
        entries[each] = &tables->entries[each][index];
        if (entries[each]->tag == tags[each]) {
            next = longest;
            longest = each;
        }
    }
    uint8_t *base = &tables->base[address & ((1u << BASE_BITS) - 1)];
    bool alternate = next >= 0 ? entries[next]->counter >= 0 : *base >= 2;
    bool prediction = alternate, is_known = false;
    if (longest >= 0) {
        struct entry *entry = entries[longest];
        bool own_prediction = entry->counter >= 0;
        bool is_new = entry->useful == 0 && (entry->counter == 0 || entry->counter == -1);
        prediction = is_new && tables->trust_alternate >= 0 ? alternate : own_prediction;
        is_known = own_prediction == taken;
        if (own_prediction != alternate) {
            if (is_new) {
                int trust = tables->trust_alternate + (alternate == taken ? 1 : -1);
                tables->trust_alternate = trust > 7 ? 7 : trust < -8 ? -8 : trust;
            }
            if (own_prediction == taken)
                entry->useful += entry->useful < 3;
            else
                entry->useful -= entry->useful > 0;
        }
        if (taken)
            entry->counter += entry->counter < 3;
        else
            entry->counter -= entry->counter > -4;
    } else {
        count_taken(base, taken);
    }
    if (prediction != taken && !is_known && longest < TABLES - 1)
        allocate(tables, entries, tags, longest + 1, taken);
    if (++tables->branches % AGEING == 0)
        age(tables);
    remember(tables, taken);
    return prediction;
}

DEFINE_RUN(run, struct tage, step)

static const struct predictor only = {"tage-32KB", 32 << 10, sizeof(struct tage), clear, run};
const struct predictor *const tage[] = {&only, NULL};
