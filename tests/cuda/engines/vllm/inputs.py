# SPDX-License-Identifier: MIT
"""What vLLM has under this name."""


class TokensPrompt(dict):
    pass
