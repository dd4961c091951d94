/* SPDX-License-Identifier: MIT */
/* A machine for the opcodes of a pickle that are data. */
#include "pytorch/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/error.h"
#include "base/out_of_memory.h"

#define TEXT_MOST UINT32_MAX
#define KEYS_MOST 64u

/* The opcodes that are read, by the names of Lib/pickletools.py. */
enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_DUP = '2',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_SHORT_BINSTRING = 'U',
    OP_BINSTRING = 'T',
    OP_BINUNICODE = 'X',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_APPEND = 'a',
    OP_APPENDS = 'e',
    OP_DICT = 'd',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_LIST = ']',
    OP_EMPTY_TUPLE = ')',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_LIST = 'l',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_LONG4 = 0x8b,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_BINBYTES8 = 0x8e,
    OP_EMPTY_SET = 0x8f,
    OP_ADDITEMS = 0x90,
    OP_FROZENSET = 0x91,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
    OP_BYTEARRAY8 = 0x96,
};

/* Those that name, make or call what is no data. */
static const struct {
    unsigned char opcode;
    const char *name;
} refused[] = {
    {'R', "REDUCE"},        {'b', "BUILD"},        {'c', "GLOBAL"},
    {'i', "INST"},          {'o', "OBJ"},          {'P', "PERSID"},
    {'Q', "BINPERSID"},     {0x81, "NEWOBJ"},      {0x82, "EXT1"},
    {0x83, "EXT2"},         {0x84, "EXT4"},        {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

struct mt_pickle {
    struct mt_arena arena;
    struct mt_pickle_value root;
};

struct machine {
    struct mt_pickle *pickle;
    const char *name;
    const uint8_t *bytes;
    size_t length;
    size_t at;
    size_t opcode_at;
    struct mt_pickle_list stack; /* its items are malloc's, as those of `marks` and `memo` */
    struct mt_pickle_list marks; /* how high the stack was */
    struct mt_pickle_list memo;
    struct mt_error *error;
};

static int fail(const struct machine *machine, int code, const char *what)
{
    return mt_fail(machine->error, code, machine->opcode_at, "%s: %s", machine->name, what);
}

static int fail_memory(const struct machine *machine)
{
    return mt_out_of_memory_for(machine->error, machine->name);
}

/* Room for one more in a list of the machine's own. */
static int push_own(struct machine *machine, struct mt_pickle_list *list,
                    struct mt_pickle_value value)
{
    if (mt_array_reserve(list->items, list->n, list->capacity, 64) < 0)
        return fail_memory(machine);
    list->items[list->n++] = value;
    return 0;
}

static int push(struct machine *machine, struct mt_pickle_value value)
{
    return push_own(machine, &machine->stack, value);
}

static struct mt_pickle_value integer_value(uint64_t integer)
{
    return (struct mt_pickle_value){.kind = MT_PICKLE_INTEGER, .of.integer = integer};
}

/* Takes the next `n` bytes, NULL where they are not there. */
static const uint8_t *take(struct machine *machine, uint64_t n)
{
    if (n > machine->length - machine->at)
        return NULL;
    const uint8_t *bytes = machine->bytes + machine->at;
    machine->at += (size_t)n;
    return bytes;
}

/* A little-endian number of `n` bytes, 8 at most. */
static int take_number(struct machine *machine, size_t n, uint64_t *number)
{
    const uint8_t *bytes = take(machine, n);
    *number = 0;
    if (!bytes)
        return fail(machine, MT_ETRUNCATED, "the pickle ends within an opcode");
    for (size_t i = 0; i < n; i++)
        *number |= (uint64_t)bytes[i] << 8 * i;
    return 0;
}

/* The bottom of the stack for the code at hand: what is below the last mark is not its own. */
static size_t floor_of(const struct machine *machine)
{
    size_t n = machine->marks.n;
    return n ? (size_t)machine->marks.items[n - 1].of.integer : 0;
}

static struct mt_pickle_value *top(const struct machine *machine, size_t depth)
{
    if (machine->stack.n - floor_of(machine) <= depth)
        return NULL;
    return &machine->stack.items[machine->stack.n - 1 - depth];
}

static int fail_stack(const struct machine *machine)
{
    return fail(machine, MT_EFORMAT, "an opcode finds too few values, or others than it wants");
}

static int push_text(struct machine *machine, size_t length_bytes)
{
    uint64_t length;
    int result = take_number(machine, length_bytes, &length);
    if (result < 0)
        return result;
    const uint8_t *bytes = take(machine, length);
    if (!bytes || length > TEXT_MOST)
        return fail(machine, MT_ETRUNCATED, "the pickle ends within a text");
    struct mt_pickle_value value = {.kind = MT_PICKLE_TEXT};
    value.of.text.at = (const char *)bytes;
    value.of.text.length = (uint32_t)length;
    return push(machine, value);
}

/* Two's complement, little-endian, in as many bytes as it wants. */
static int push_long(struct machine *machine, size_t length_bytes)
{
    uint64_t length;
    uint64_t number = 0;
    int result = take_number(machine, length_bytes, &length);
    if (result < 0)
        return result;
    const uint8_t *bytes = take(machine, length);
    if (!bytes)
        return fail(machine, MT_ETRUNCATED, "the pickle ends within a number");
    int is_negative = length && bytes[length - 1] & 0x80;
    int fits = length <= 8 || (length == 9 && bytes[8] == 0);
    for (size_t i = 0; i < 8; i++)
        number |= (uint64_t)(i < length ? bytes[i] : is_negative ? 0xff : 0) << 8 * i;
    struct mt_pickle_value value = integer_value(number);
    if (!fits)
        value.kind = MT_PICKLE_OTHER;
    return push(machine, value);
}

static int push_real(struct machine *machine)
{
    uint64_t number;
    struct mt_pickle_value value = {.kind = MT_PICKLE_REAL};
    int result = take_number(machine, 8, &number);
    if (result < 0)
        return result;
    number = __builtin_bswap64(number);
    memcpy(&value.of.real, &number, sizeof number);
    return push(machine, value);
}

static int push_list(struct machine *machine, enum mt_pickle_kind kind)
{
    struct mt_pickle_value value = {.kind = kind};
    value.of.list = mt_arena_alloc(&machine->pickle->arena, sizeof *value.of.list);
    return value.of.list ? push(machine, value) : fail_memory(machine);
}

/* Appends the `n` values on top of the stack to a list, and takes them off. What a list outgrows
 * stays in the arena: less than it has in the end. */
static int append(struct machine *machine, struct mt_pickle_list *list, size_t n)
{
    if (list->n + n > list->capacity) {
        size_t more = 2 * list->capacity > list->n + n ? 2 * list->capacity : list->n + n;
        struct mt_pickle_value *items =
            mt_arena_array(&machine->pickle->arena, more, sizeof *items);
        if (!items)
            return fail_memory(machine);
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = more;
    }
    if (n)
        memcpy(list->items + list->n, machine->stack.items + machine->stack.n - n,
               n * sizeof *list->items);
    list->n += n;
    machine->stack.n -= n;
    return 0;
}

/* Takes the last mark away; `n` is how many values were above it. */
static int take_mark(struct machine *machine, size_t *n)
{
    if (!machine->marks.n)
        return fail(machine, MT_EFORMAT, "an opcode wants a mark, and there is none");
    *n = machine->stack.n - floor_of(machine);
    machine->marks.n--;
    return 0;
}

static int extend(struct machine *machine, enum mt_pickle_kind kind, size_t n)
{
    struct mt_pickle_value *target = top(machine, n);
    if (!target || target->kind != kind || (kind == MT_PICKLE_DICT && n % 2))
        return fail_stack(machine);
    return append(machine, target->of.list, n);
}

static int extend_from_mark(struct machine *machine, enum mt_pickle_kind kind)
{
    size_t n;
    int result = take_mark(machine, &n);
    return result < 0 ? result : extend(machine, kind, n);
}

/* The `n` values on top become one. */
static int collect(struct machine *machine, enum mt_pickle_kind kind, size_t n)
{
    struct mt_pickle_value value = {.kind = kind};
    if (machine->stack.n - floor_of(machine) < n || (kind == MT_PICKLE_DICT && n % 2))
        return fail_stack(machine);
    value.of.list = mt_arena_alloc(&machine->pickle->arena, sizeof *value.of.list);
    if (!value.of.list)
        return fail_memory(machine);
    int result = append(machine, value.of.list, n);
    return result < 0 ? result : push(machine, value);
}

static int collect_from_mark(struct machine *machine, enum mt_pickle_kind kind)
{
    size_t n;
    int result = take_mark(machine, &n);
    return result < 0 ? result : collect(machine, kind, n);
}

/* Puts are numbered as they come, but for what a hostile file says. */
static int remember(struct machine *machine, uint64_t index)
{
    const struct mt_pickle_value *value = top(machine, 0);
    if (!value)
        return fail_stack(machine);
    if (index > machine->at)
        return fail(machine, MT_EFORMAT, "a memo has a higher number than any pickle gives");
    while (machine->memo.n <= index) {
        int result =
            push_own(machine, &machine->memo, (struct mt_pickle_value){.kind = MT_PICKLE_OTHER});
        if (result < 0)
            return result;
    }
    machine->memo.items[index] = *value;
    return 0;
}

static int recall(struct machine *machine, uint64_t index)
{
    if (index >= machine->memo.n)
        return fail(machine, MT_EFORMAT, "a memo is asked for that was never made");
    return push(machine, machine->memo.items[index]);
}

static int with_number(struct machine *machine, size_t n_bytes,
                       int (*act)(struct machine *machine, uint64_t number))
{
    uint64_t number;
    int result = take_number(machine, n_bytes, &number);
    return result < 0 ? result : act(machine, number);
}

static int push_unsigned(struct machine *machine, uint64_t number)
{
    return push(machine, integer_value(number));
}

static int push_signed(struct machine *machine, uint64_t number)
{
    return push(machine, integer_value((uint64_t)(int64_t)(int32_t)number));
}

static int ignore(struct machine *machine, uint64_t number)
{
    (void)machine;
    (void)number;
    return 0;
}

static int check_protocol(struct machine *machine, uint64_t number)
{
    if (number > 5)
        return mt_fail(machine->error, MT_EVERSION, machine->opcode_at,
                       "%s: a pickle of protocol %u; memtally reads 2 to 5", machine->name,
                       (unsigned)number);
    return 0;
}

static int duplicate(struct machine *machine)
{
    const struct mt_pickle_value *value = top(machine, 0);
    return value ? push(machine, *value) : fail_stack(machine);
}

static int pop(struct machine *machine)
{
    if (!top(machine, 0))
        return fail_stack(machine);
    machine->stack.n--;
    return 0;
}

static int pop_to_mark(struct machine *machine)
{
    size_t n;
    int result = take_mark(machine, &n);
    if (result == 0)
        machine->stack.n -= n;
    return result;
}

static int refuse(const struct machine *machine, uint8_t opcode)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].opcode == opcode)
            return mt_fail(machine->error, MT_EFORMAT, machine->opcode_at,
                           "%s: the pickle has more than data (%s), which memtally never executes",
                           machine->name, refused[i].name);
    return mt_fail(machine->error, MT_EFORMAT, machine->opcode_at,
                   "%s: no pickle of protocol 2 to 5 (opcode 0x%02x)", machine->name, opcode);
}

static int run_text(struct machine *machine, uint8_t opcode)
{
    switch (opcode) {
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINBYTES:
    case OP_SHORT_BINUNICODE:
        return push_text(machine, 1);
    case OP_BINSTRING:
    case OP_BINUNICODE:
    case OP_BINBYTES:
        return push_text(machine, 4);
    case OP_BINUNICODE8:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return push_text(machine, 8);
    default:
        return refuse(machine, opcode);
    }
}

static int run_list(struct machine *machine, uint8_t opcode)
{
    switch (opcode) {
    case OP_EMPTY_LIST:
    case OP_EMPTY_TUPLE:
    case OP_EMPTY_SET:
        return push_list(machine, MT_PICKLE_LIST);
    case OP_EMPTY_DICT:
        return push_list(machine, MT_PICKLE_DICT);
    case OP_APPEND:
        return extend(machine, MT_PICKLE_LIST, 1);
    case OP_APPENDS:
    case OP_ADDITEMS:
        return extend_from_mark(machine, MT_PICKLE_LIST);
    case OP_SETITEM:
        return extend(machine, MT_PICKLE_DICT, 2);
    case OP_SETITEMS:
        return extend_from_mark(machine, MT_PICKLE_DICT);
    case OP_LIST:
    case OP_TUPLE:
    case OP_FROZENSET:
        return collect_from_mark(machine, MT_PICKLE_LIST);
    case OP_DICT:
        return collect_from_mark(machine, MT_PICKLE_DICT);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return collect(machine, MT_PICKLE_LIST, opcode - OP_TUPLE1 + 1u);
    default:
        return run_text(machine, opcode);
    }
}

static int run_number(struct machine *machine, uint8_t opcode)
{
    switch (opcode) {
    case OP_BININT:
        return with_number(machine, 4, push_signed);
    case OP_BININT1:
        return with_number(machine, 1, push_unsigned);
    case OP_BININT2:
        return with_number(machine, 2, push_unsigned);
    case OP_LONG1:
        return push_long(machine, 1);
    case OP_LONG4:
        return push_long(machine, 4);
    case OP_BINFLOAT:
        return push_real(machine);
    case OP_NONE:
        return push(machine, (struct mt_pickle_value){.kind = MT_PICKLE_NONE});
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push(machine, (struct mt_pickle_value){.kind = MT_PICKLE_BOOL,
                                                      .of.integer = opcode == OP_NEWTRUE});
    default:
        return run_list(machine, opcode);
    }
}

static int run(struct machine *machine, uint8_t opcode)
{
    switch (opcode) {
    case OP_PROTO:
        return with_number(machine, 1, check_protocol);
    case OP_FRAME:
        return with_number(machine, 8, ignore);
    case OP_MARK:
        return push_own(machine, &machine->marks, integer_value(machine->stack.n));
    case OP_POP:
        return pop(machine);
    case OP_POP_MARK:
        return pop_to_mark(machine);
    case OP_DUP:
        return duplicate(machine);
    case OP_BINPUT:
        return with_number(machine, 1, remember);
    case OP_LONG_BINPUT:
        return with_number(machine, 4, remember);
    case OP_MEMOIZE:
        return remember(machine, machine->memo.n);
    case OP_BINGET:
        return with_number(machine, 1, recall);
    case OP_LONG_BINGET:
        return with_number(machine, 4, recall);
    default:
        return run_number(machine, opcode);
    }
}

static int run_all(struct machine *machine)
{
    for (;;) {
        machine->opcode_at = machine->at;
        if (machine->at == machine->length)
            return fail(machine, MT_ETRUNCATED, "the pickle ends before its last opcode");
        uint8_t opcode = machine->bytes[machine->at++];
        if (opcode == OP_STOP)
            break;
        int result = run(machine, opcode);
        if (result < 0)
            return result;
    }
    if (machine->stack.n != 1 || machine->marks.n)
        return fail(machine, MT_EFORMAT, "the pickle ends with more or less than one value");
    machine->pickle->root = machine->stack.items[0];
    return 0;
}

int mt_pickle_read(const void *bytes, size_t length, const char *name, struct mt_pickle **pickle,
                   struct mt_error *error)
{
    struct machine machine = {.name = name, .bytes = bytes, .length = length, .error = error};
    if (!length || machine.bytes[0] != OP_PROTO)
        return mt_fail(error, MT_EFORMAT, 0, "%s: no pickle of protocol 2 to 5", name);
    machine.pickle = calloc(1, sizeof *machine.pickle);
    if (!machine.pickle)
        return fail_memory(&machine);
    int result = run_all(&machine);
    free(machine.stack.items);
    free(machine.marks.items);
    free(machine.memo.items);
    if (result < 0) {
        mt_pickle_destroy(machine.pickle);
        return result;
    }
    *pickle = machine.pickle;
    return 0;
}

void mt_pickle_destroy(struct mt_pickle *pickle)
{
    if (!pickle)
        return;
    mt_arena_finish(&pickle->arena);
    free(pickle);
}

const struct mt_pickle_value *mt_pickle_root(const struct mt_pickle *pickle)
{
    return &pickle->root;
}

int mt_pickle_is_text(const struct mt_pickle_value *value, const char *text)
{
    size_t length = strlen(text);
    return value && value->kind == MT_PICKLE_TEXT && value->of.text.length == length &&
           memcmp(value->of.text.at, text, length) == 0;
}

const struct mt_pickle_value *mt_pickle_get(const struct mt_pickle_value *value, const char *key)
{
    if (!value || value->kind != MT_PICKLE_DICT)
        return NULL;
    const struct mt_pickle_list *list = value->of.list;
    size_t first = list->n > 2 * KEYS_MOST ? list->n - 2 * KEYS_MOST : 0;
    for (size_t i = list->n; i >= first + 2; i -= 2)
        if (mt_pickle_is_text(&list->items[i - 2], key))
            return &list->items[i - 1];
    return NULL;
}

struct mt_pickle_list *mt_pickle_as_list(const struct mt_pickle_value *value)
{
    return value && value->kind == MT_PICKLE_LIST ? value->of.list : NULL;
}

uint64_t mt_pickle_as_integer(const struct mt_pickle_value *value, uint64_t fallback)
{
    return value && (value->kind == MT_PICKLE_INTEGER || value->kind == MT_PICKLE_BOOL)
               ? value->of.integer
               : fallback;
}
