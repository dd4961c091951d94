# SPDX-License-Identifier: MIT
"""What vLLM has under this name."""


class UsageContext:
    OPENAI_API_SERVER = "server"
