/* SPDX-License-Identifier: MIT */
/* A function that throws: the exception reaches the caller and the measurement is put away. */
#include <cassert>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <memtally/error.h>
#include <memtally/measure.h>

static void *throws(void *argument)
{
    throw std::runtime_error(static_cast<const char *>(argument));
}

static void *returns(void *argument)
{
    return argument;
}

static std::string thrown_by(enum mt_measure_method method)
{
    static char says[] = "no room";
    struct mt_measure_options options = MT_MEASURE_OPTIONS_INIT;
    struct mt_measure_result result = {};
    options.method = method;
    try {
        mt_measure_call(throws, says, &options, &result, nullptr);
    } catch (const std::runtime_error &error) {
        assert(result.peak_bytes == 0);
        return error.what();
    }
    return "nothing";
}

int main()
{
    assert(thrown_by(MT_MEASURE_AUTO) == "no room");
    assert(thrown_by(MT_MEASURE_SAMPLED) == "no room");
    /* Had one of them stayed in the list, this call would overlap with it. */
    struct mt_measure_result result;
    assert(mt_measure_call(returns, &result, nullptr, &result, nullptr) == MT_OK);
    assert(result.value == &result);
    assert(!result.overlapped);
    return 0;
}
