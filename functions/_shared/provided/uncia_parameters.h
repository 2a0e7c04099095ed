/*
 * Parameters of events that are whole numbers or words. The event may be text in the body of an HTTP request, its
 * quotes escaped; names are those that no other text of the event has.
 */

#ifndef UNCIA_PARAMETERS_H
#define UNCIA_PARAMETERS_H

#include "uncia_runtime.h"

/* Where the value of a parameter begins; NULL if it is not given. */
static const char *value_of(const char *event, const char *key)
{
    const char *at = strstr(event, key);
    if (at == NULL)
        return NULL;
    at = skip(at + strlen(key), "\\\" \t\r\n");
    return *at == ':' ? skip(at + 1, "\\\" \t\r\n") : "";
}

/* Reads a whole number, if it is given; false if it is none, or out of bounds. */
static bool whole(const char *event, const char *key, int64_t low, int64_t high, int64_t *value)
{
    const char *at = value_of(event, key);
    if (at == NULL)
        return true;
    char *rest;
    errno = 0;
    long long number = strtoll(at, &rest, 10);
    if (rest == at || errno != 0 || strchr(".eE", *rest) != NULL || number < low || number > high)
        return false;
    *value = number;
    return true;
}

/* Reads one of the words, if one is given; false if it is another. */
static bool word(const char *event, const char *key, const char *const words[], int count, int *chosen)
{
    const char *at = value_of(event, key);
    if (at == NULL)
        return true;
    size_t length = strcspn(at, "\\\"");
    for (int i = 0; i < count; i++)
        if (strlen(words[i]) == length && strncmp(at, words[i], length) == 0) {
            *chosen = i;
            return true;
        }
    return false;
}

#endif
