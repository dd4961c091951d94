// SPDX-License-Identifier: MIT
// The same from C++: anything callable, its result typed, its exceptions passed through.
//
//     c++ -std=c++17 measure.cpp $(pkg-config --cflags --libs memtally) && ./a.out
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <vector>

#include <memtally/memtally.h>

// Calls `function` once and measures it; its result goes to `value`.
template <typename Function, typename Value>
static mt_measure_result measure(Function &&function, Value &value)
{
    auto body = [&] { value = function(); };
    using Body = decltype(body);
    mt_measure_result result;
    mt_error error;
    auto call = [](void *argument) -> void * {
        (*static_cast<Body *>(argument))();
        return nullptr;
    };
    if (mt_measure_call(call, &body, nullptr, &result, &error) != MT_OK)
        throw std::runtime_error(error.text);
    return result;
}

static void print(const char *what, std::uint64_t bytes)
{
    char text[MT_SIZE_TEXT];
    std::cout << what << ' ' << mt_format_size(bytes, text) << '\n';
}

int main()
{
    try {
        std::vector<float> cache;
        int nothing = 0;
        const auto result =
            measure([] { return std::vector<float>(std::size_t{8} << 20, 1.0f); }, cache);
        std::cout << "method " << mt_measure_method_name(result.method) << '\n';
        print("held  ", cache.size() * sizeof cache[0]);
        print("growth", result.growth_bytes);

        measure([]() -> int { throw std::length_error("the context is too long"); }, nothing);
    } catch (const std::length_error &error) {
        std::cout << "caught: " << error.what() << '\n';
        return 0;
    } catch (const std::exception &error) {
        std::cerr << "measure: " << error.what() << '\n';
        return 1;
    }
    return 1;
}
