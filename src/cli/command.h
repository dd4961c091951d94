/* SPDX-License-Identifier: MIT */
/* What a command of the program is.
 *
 * A command is one file that ends in one `const struct cmd_entry`; a line in commands.def makes it
 * known. Parsing, help, man pages and completions all come from the entry and its option table, so
 * nothing about an option is said twice. A command keeps its options in a struct of its own, which
 * the parser fills; there is no other state. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stddef.h>

#include "base/strbuf.h"

/* Exit codes of the program. `run` passes on the status of the program that it runs, and uses the
 * last three as env(1) and timeout(1) do. */
enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_NO = 1,     /* the answer is no, or the work failed */
    CLI_EXIT_USAGE = 2,  /* wrong usage or bad input */
    CLI_EXIT_CANNOT = 3, /* this machine cannot: no permission, no kernel support, no room */
    CLI_EXIT_FAILED = 125,
    CLI_EXIT_NOT_EXECUTABLE = 126,
    CLI_EXIT_NOT_FOUND = 127,
    CLI_EXIT_READER_GONE = 141 /* 128 + SIGPIPE, as of a program that the signal ends */
};

/* What an option takes, and the type of the member that it is written to. */
enum cli_option_kind {
    CLI_FLAG,      /* nothing; int: set to `value`, or to 1 where that is 0 */
    CLI_TEXT,      /* const char *: borrowed from argv */
    CLI_TEXTS,     /* struct cli_texts: as often as it is given, borrowed from argv */
    CLI_FILE,      /* const char *: a path to a file */
    CLI_DIRECTORY, /* const char *: a path to a folder */
    CLI_SIZE,      /* uint64_t: bytes, as mt_parse_size() reads them */
    CLI_COUNT, /* uint64_t: a whole number from `least` to `most` (0: no upper bound); 8k is 8192 */
    CLI_REAL,  /* double: a number from `least` to `most` (0: no upper bound) */
    CLI_CHOICE /* int: the index in `choices` */
};

/* The values of an option that may be given several times, in their order. */
#define CLI_TEXTS_MAX 64
struct cli_texts {
    const char *items[CLI_TEXTS_MAX];
    size_t n;
};

/* One row of an option table; a row without a name ends it. `offset` is the member's place in the
 * command's options struct. `fallback` is the default as the user would write it: the parser
 * starts by parsing it, and help prints it. Without one the member stays zero. `help` is one or two
 * sentences in lower case without a final full stop. */
struct cli_option {
    const char *name; /* long name, without its dashes */
    char letter;      /* short name, or 0 */
    enum cli_option_kind kind;
    const char *argument; /* what help calls the value; NULL for a flag */
    const char *fallback;
    const char *help;
    size_t offset;
    const char *const *choices; /* for CLI_CHOICE; ends with NULL */
    int value;                  /* for CLI_FLAG */
    unsigned long least;
    unsigned long most;
    void (*words)(struct mt_strbuf *out); /* what completion offers for free text, or NULL */
    int is_list; /* completion offers the words after each comma, and after a number and an x */
};

struct cli_example {
    const char *command;
    const char *says; /* one sentence */
};

struct cli_status {
    const char *code; /* "0", "128+n" */
    const char *means;
};

/* What stands after the options, for completion. */
enum cli_operands {
    CLI_OPERANDS_NONE,
    CLI_OPERANDS_FILES,
    CLI_OPERANDS_PROGRAM, /* a command line: parsing stops at the first operand */
    CLI_OPERANDS_PROCESS, /* the number of a process */
    CLI_OPERANDS_COMMANDS /* names of memtally's own commands */
};

struct cmd_entry;

/* A parsed command line. */
struct cli_call {
    const struct cmd_entry *entry;
    const void *options; /* the command's own options struct */
    size_t n_operands;
    char **operands; /* ends with NULL; borrowed from argv */
    int has_dashes;  /* "--" was among the words */
    size_t n_plain;  /* operands before "--"; all of them where it is not there */
};

/* A command. Arrays end with a NULL or a row of NULLs; all but `name`, `synopsis`, `summary` and
 * `run` may be absent. `run` returns the exit code of the program. */
struct cmd_entry {
    const char *name;
    const char *synopsis;           /* what follows the name: "[options] DIR..." */
    const char *summary;            /* one line, lower case, without a full stop */
    const char *const *description; /* paragraphs */
    const struct cli_example *examples;
    const struct cli_status *statuses; /* NULL: the common ones */
    const struct cli_option *options;
    size_t options_size; /* of the options struct */
    enum cli_operands operands;
    const char *(*operand_word)(size_t index); /* what completion offers as the first operand; NULL
                                                  past the last word */
    size_t least_operands;
    size_t most_operands; /* 0 with operands: any number */
    int (*run)(const struct cli_call *call);
};

/* The program itself: what `memtally --version` and the like are. */
extern const struct cmd_entry cmd_memtally;

/* All commands, in the order of help; ends with NULL. Borrowed, static. */
const struct cmd_entry *const *cli_commands(void);

/* The command called `name`, or NULL. */
const struct cmd_entry *cli_command_by_name(const char *name);

/* The options that every command has (--help), ended by a row without a name. */
const struct cli_option *cli_common_options(void);

/* The options --format and --json of a command: `member` is where its options struct has the number
 * of the format among `names`, `json` is that of JSON. */
#define CLI_FORMAT_OPTIONS(member, names, json, text)                                              \
    {.name = "format",                                                                             \
     .letter = 'f',                                                                                \
     .kind = CLI_CHOICE,                                                                           \
     .argument = "FORMAT",                                                                         \
     .choices = (names),                                                                           \
     .fallback = "table",                                                                          \
     .offset = (member),                                                                           \
     .help = (text)},                                                                              \
    {                                                                                              \
        .name = "json", .kind = CLI_FLAG, .offset = (member), .value = (json),                     \
        .help = "the same as --format json"                                                        \
    }

#endif
