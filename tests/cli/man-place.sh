# SPDX-License-Identifier: MIT
# A place that the table cannot fill is an error with its position.
echo "text @NONSENSE@" >page.scd
memtally help --man page.scd help
