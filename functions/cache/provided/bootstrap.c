/* A store of keys and lists in memory, of which each request carries out so many commands. */

#define _GNU_SOURCE
#include "uncia_parameters.h"

#define VALUE_WORDS 128 /* 1 KB */
#define ENTRY_WORDS 8   /* 64 bytes */
#define MOST_KEYS 1000000
#define MOST_ENTRIES 1000000

static const char *const COMMANDS[] = {"set", "get", "lpush", "lrange"};
enum { SET, GET, LPUSH, LRANGE };

/* The value of a key: all its words are the number of its writing times the key; 0: never written. */
typedef struct {
    uint64_t key, words[VALUE_WORDS];
} Item;

typedef struct Entry {
    struct Entry *next;
    uint64_t words[ENTRY_WORDS];
} Entry;

/* Open addressing, twice as large as there are keys, a power of two. */
static Item *table;
static uint64_t slots, keys_of_table;
static Entry *list, *spare;
static int64_t entries;
static uint64_t state = 88172645463325252u, writings;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static bool make_table(uint64_t keys)
{
    if (keys_of_table == keys)
        return true;
    free(table);
    for (slots = 2; slots < 2 * keys; slots *= 2)
        ;
    table = calloc(slots, sizeof *table);
    keys_of_table = table == NULL ? 0 : keys;
    return table != NULL;
}

/* The slot of a key, which is above 0. */
static Item *find(uint64_t key)
{
    uint64_t at = key * 11400714819323198485u;
    for (;; at++) {
        Item *item = &table[at & (slots - 1)];
        if (item->key == key || item->key == 0)
            return item;
    }
}

static void set(uint64_t key)
{
    Item *item = find(key);
    item->key = key;
    uint64_t word = ++writings * key;
    for (int i = 0; i < VALUE_WORDS; i++)
        item->words[i] = word;
}

static bool get(uint64_t key)
{
    const Item *item = find(key);
    bool same = true;
    for (int i = 0; i < VALUE_WORDS; i++) {
        same = same && item->words[i] == item->words[0];
    }
    return same && (item->key == 0 || item->words[0] % key == 0);
}

static bool push(void)
{
    Entry *entry = spare;
    if (entry != NULL)
        spare = entry->next;
    else
        entry = malloc(sizeof *entry);
    if (entry == NULL)
        return false;
    entries++;
    for (int i = 0; i < ENTRY_WORDS; i++)
        entry->words[i] = (uint64_t)entries;
    entry->next = list;
    list = entry;
    /* A list that is too long begins anew; its entries are used again. */
    if (entries == MOST_ENTRIES) {
        while (list != NULL) {
            Entry *next = list->next;
            list->next = spare;
            spare = list;
            list = next;
        }
        entries = 0;
    }
    return true;
}

static bool range(int64_t count)
{
    uint64_t number = (uint64_t)entries;
    const Entry *entry = list;
    for (int64_t i = 0; i < count; i++, entry = entry->next, number--)
        for (int word = 0; word < ENTRY_WORDS; word++)
            if (entry->words[word] != number)
                return false;
    return true;
}

static bool refuse(Text *to, const char *message)
{
    add(to, "{\"errorType\": \"ValueError\", \"errorMessage\": \"%s\"}", message);
    return false;
}

static bool answer(const Invocation *invocation, Text *to)
{
    int64_t commands = 1000, keys = 50000, length = 600;
    int command = SET;
    bool valid = true;
    if (!word(invocation->event, "operation", COMMANDS, 4, &command))
        return refuse(to, "operation: not set, get, lpush or lrange");
    if (!whole(invocation->event, "repeat", 1, 10000000, &commands))
        return refuse(to, "repeat: not a whole number between 1 and 10000000");
    if (!whole(invocation->event, "keys", 1, MOST_KEYS, &keys))
        return refuse(to, "keys: not a whole number between 1 and 1000000");
    if (!whole(invocation->event, "entries", 1, 100000, &length))
        return refuse(to, "entries: not a whole number between 1 and 100000");
    if (command <= GET && !make_table((uint64_t)keys))
        return refuse(to, "keys: there is not so much memory");
    while (command == LRANGE && entries < length)
        if (!push())
            return refuse(to, "entries: there is not so much memory");
    int64_t begin = read_clock(CLOCK_MONOTONIC);
    for (int64_t i = 0; i < commands && valid; i++) {
        uint64_t key = draw() % (uint64_t)keys + 1;
        switch (command) {
        case SET:
            set(key);
            break;
        case GET:
            valid = get(key);
            break;
        case LPUSH:
            valid = push();
            break;
        default:
            valid = range(length);
        }
    }
    int64_t took = read_clock(CLOCK_MONOTONIC) - begin;
    add(to, "{\"carried_out\": %" PRId64 ", \"wall_ns\": %" PRId64, commands, took);
    add(to, ", \"parameters\": {\"operation\": \"%s\", \"repeat\": %" PRId64, COMMANDS[command], commands);
    add(to, ", \"keys\": %" PRId64 ", \"entries\": %" PRId64 "}, \"uncia\": {", keys, length);
    add_envelope(to, invocation, valid);
    return true;
}

int main(void)
{
    serve(answer);
}
