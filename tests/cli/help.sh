# SPDX-License-Identifier: MIT
memtally help && memtally --help | cmp - /dev/fd/3 3<<END
$(memtally help)
END
