/* SPDX-License-Identifier: MIT */
/* The made-up vocabulary of sample models. */
#ifndef MT_MODEL_VOCABULARY_H
#define MT_MODEL_VOCABULARY_H

#include "write.h"

/* Appends the tokenizer.* pairs of a vocabulary of `n_tokens`, at least MT_MODEL_VOCABULARY_MIN. */
void mt_vocabulary_put(struct mt_gguf_header *header, uint64_t n_tokens);

#endif
