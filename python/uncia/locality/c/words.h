/* A trace of branches: words of 64 bits, little endian, in the order of execution.
 *
 *   bit 0        whether the branch was taken
 *   bits 1-47    its address
 *   bits 48-63   instructions that were executed since the word before, the branch included
 *
 * A word whose address is below PAGE, where no program has code, is no branch: NOTHING has instructions alone,
 * PART ends the start or an invocation, REPEATED has in bits 48-63 how often `rep` repeated its instruction.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdint.h>

#define COUNT_SHIFT 48
#define MOST_COUNT 0xffffull
#define BRANCH_MASK ((1ull << COUNT_SHIFT) - 1)
#define PAGE 4096ull

enum { NOTHING = 0, PART = 1, REPEATED = 2 };

#endif
