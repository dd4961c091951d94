/* SPDX-License-Identifier: MIT */
/* A SentencePiece vocabulary that no one trained. It holds control tokens, the 256 bytes, the
 * visible ASCII characters, some everyday words in both cases, and numbered fillers ("w17") up to
 * the size that the model asks for. Any text can be written in it, plain English takes one to a few
 * tokens a word, and whatever a random model says in it is harmless.
 *
 * A tokeniser joins pieces two at a time, so a word can be reached only if each of its beginnings
 * is a token too. Scores fall with the index: beginnings come before what they lead to. */
#include "vocabulary.h"

#include <stdio.h>
#include <string.h>

#define BLANK "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */

/* In strict ASCII order, which is what lets shared beginnings be written once. */
static const char *const words[] = {
    "a",      "about",    "after",   "again",   "all",    "also",    "an",        "and",
    "answer", "are",      "as",      "at",      "back",   "be",      "because",   "been",
    "before", "best",     "big",     "book",    "but",    "by",      "can",       "city",
    "cold",   "come",     "could",   "country", "day",    "did",     "different", "do",
    "down",   "each",     "end",     "even",    "every",  "example", "explain",   "few",
    "find",   "first",    "for",     "four",    "from",   "garden",  "get",       "give",
    "go",     "good",     "great",   "green",   "had",    "has",     "have",      "he",
    "help",   "her",      "here",    "high",    "him",    "his",     "house",     "how",
    "i",      "if",       "in",      "into",    "is",     "it",      "its",       "just",
    "know",   "language", "large",   "last",    "letter", "like",    "line",      "little",
    "long",   "look",     "made",    "make",    "many",   "may",     "me",        "memory",
    "model",  "more",     "morning", "most",    "much",   "must",    "my",        "name",
    "new",    "no",       "not",     "now",     "number", "of",      "off",       "old",
    "on",     "once",     "one",     "only",    "or",     "other",   "our",       "out",
    "over",   "own",      "page",    "people",  "place",  "prompt",  "question",  "read",
    "right",  "river",    "said",    "same",    "say",    "school",  "see",       "sentence",
    "she",    "short",    "small",   "so",      "some",   "story",   "such",      "take",
    "tell",   "text",     "than",    "that",    "the",    "their",   "them",      "then",
    "there",  "these",    "they",    "thing",   "think",  "this",    "three",     "time",
    "to",     "today",    "token",   "two",     "under",  "up",      "us",        "use",
    "very",   "want",     "was",     "water",   "way",    "we",      "well",      "were",
    "what",   "when",     "where",   "which",   "while",  "who",     "why",       "will",
    "with",   "word",     "words",   "work",    "world",  "would",   "write",     "year",
    "you",    "your",
};

#define N_WORDS       (sizeof words / sizeof *words)
#define N_CONTROL     3
#define N_BYTES       256
#define FIRST_VISIBLE 0x21
#define N_VISIBLE     94

static size_t shared_beginning(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

static void put_bytes_and_characters(struct mt_gguf_header *header)
{
    char text[8];
    for (unsigned byte = 0; byte < N_BYTES; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", byte);
        mt_gguf_string_value(header, text);
    }
    mt_gguf_string_value(header, BLANK);
    for (int c = FIRST_VISIBLE; c < FIRST_VISIBLE + N_VISIBLE; c++) {
        snprintf(text, sizeof text, "%c", c);
        mt_gguf_string_value(header, text);
    }
}

/* Writes the beginnings of words that were not written yet, at most `room`; returns how many. */
static uint64_t put_words(struct mt_gguf_header *header, int capital, uint64_t room)
{
    uint64_t n = 0;
    for (size_t w = 0; w < N_WORDS; w++) {
        size_t written = w ? shared_beginning(words[w - 1], words[w]) : 0;
        for (size_t length = written + 1; length <= strlen(words[w]) && n < room; length++, n++) {
            char text[40];
            snprintf(text, sizeof text, BLANK "%.*s", (int)length, words[w]);
            if (capital)
                text[sizeof BLANK - 1] = (char)(text[sizeof BLANK - 1] - 'a' + 'A');
            mt_gguf_string_value(header, text);
        }
    }
    return n;
}

static void put_fillers(struct mt_gguf_header *header, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, BLANK "w%llu", (unsigned long long)i);
        mt_gguf_string_value(header, text);
    }
}

static void put_tokens(struct mt_gguf_header *header, uint64_t n_tokens)
{
    mt_gguf_array(header, "tokenizer.ggml.tokens", MT_GGUF_STRING, n_tokens);
    mt_gguf_string_value(header, "<unk>");
    mt_gguf_string_value(header, "<s>");
    mt_gguf_string_value(header, "</s>");
    put_bytes_and_characters(header);
    uint64_t room = n_tokens - (N_CONTROL + N_BYTES + 1 + N_VISIBLE);
    room -= put_words(header, 0, room);
    room -= put_words(header, 1, room);
    put_fillers(header, room);
}

static void put_scores_and_types(struct mt_gguf_header *header, uint64_t n_tokens)
{
    enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };
    uint64_t n_fixed = N_CONTROL + N_BYTES;
    mt_gguf_array(header, "tokenizer.ggml.scores", MT_GGUF_F32, n_tokens);
    for (uint64_t i = 0; i < n_tokens; i++)
        mt_gguf_f32_value(header, i < n_fixed ? 0.0F : -(float)(i - n_fixed));
    mt_gguf_array(header, "tokenizer.ggml.token_type", MT_GGUF_I32, n_tokens);
    for (uint64_t i = 0; i < n_tokens; i++)
        mt_gguf_i32_value(header, i == 0          ? UNKNOWN
                                  : i < N_CONTROL ? CONTROL
                                  : i < n_fixed   ? BYTE
                                                  : NORMAL);
}

void mt_vocabulary_put(struct mt_gguf_header *header, uint64_t n_tokens)
{
    mt_gguf_string(header, "tokenizer.ggml.model", "llama");
    mt_gguf_string(header, "tokenizer.ggml.pre", "default");
    put_tokens(header, n_tokens);
    put_scores_and_types(header, n_tokens);
    mt_gguf_u32(header, "tokenizer.ggml.unknown_token_id", 0);
    mt_gguf_u32(header, "tokenizer.ggml.bos_token_id", 1);
    mt_gguf_u32(header, "tokenizer.ggml.eos_token_id", 2);
    mt_gguf_bool(header, "tokenizer.ggml.add_bos_token", 1);
    mt_gguf_bool(header, "tokenizer.ggml.add_eos_token", 0);
}
