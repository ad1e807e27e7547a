#include "lib/tensor/array.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/tensor/allocator.h"

using namespace lumen;

TEST_CASE("an array knows its bytes, also in blocks") {
  CHECK(Array::zeros(DType::kF32, {2, 3}).bytes() == 24);
  CHECK(Array::zeros(DType::kQ8_0, {2, 64}).bytes() == 2 * 2 * 34);
  CHECK(Array::zeros(DType::kI32, {}).bytes() == 4);
  CHECK(Array::zeros(DType::kF32, {0, 3}).bytes() == 0);
}

TEST_CASE("a matrix in panels has the bytes of whole panels") {
  const auto buffer = std::make_shared<const Buffer>(allocate(32 * 34 * 2));
  const Array panels = Array::view(buffer, 0, DType::kQ8_0, {17, 64}, Layout::kPanels);
  CHECK(panels.bytes() == 32 * 34 * 2);
  CHECK(panels.layout() == Layout::kPanels);
  CHECK(panels.storage() == buffer->data);
  CHECK(panels.elements() == 17 * 64);
  CHECK(Array::zeros(DType::kQ8_0, {17, 64}).layout() == Layout::kRows);
}

TEST_CASE("views share memory and keep it alive") {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Array array = Array::from<float>(values, {2, 3});
  Array view = array.reshaped({3, 2});
  array.as_mutable<float>()[5] = 9;
  array = {};
  CHECK(view.as<float>()[5] == 9);
}

TEST_CASE("the allocator counts what lives") {
  const auto before = memory_stats();
  {
    Array array = Array::zeros(DType::kF32, {1 << 20});
    CHECK(memory_stats().live_bytes >= before.live_bytes + (4 << 20));
    CHECK(reinterpret_cast<uintptr_t>(array.data()) % 64 == 0);
  }
  CHECK(memory_stats().live_bytes == before.live_bytes);
  CHECK(memory_stats().allocations == before.allocations + 1);
}

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LUMEN_TENSOR_SANITIZED
#endif
#endif
// glibc's allocator, which sanitizers replace.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(LUMEN_TENSOR_SANITIZED)
TEST_CASE("memory of huge pages that was freed is taken again without new pages") {
  const auto faults_of_one_use = [] {
    const auto faults = [] {
      rusage usage;
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_minflt;
    };
    const auto before = faults();
    const Buffer buffer = allocate(size_t{6} << 20);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data) % (size_t{2} << 20) == 0);
    std::memset(buffer.data, 1, buffer.bytes);
    return faults() - before;
  };
  for (int i = 0; i < 3; ++i) faults_of_one_use();
  CHECK(faults_of_one_use() == 0);
}
#endif

TEST_CASE("an impossible size is an error that names it") {
  try {
    allocate(size_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kResource);
    CHECK(std::string(error.what()).find("1.0 EiB") != std::string::npos);
  }
}

TEST_CASE("memory beyond the limit is refused, whether or not the kernel would promise it") {
  constexpr size_t kMiB = 1 << 20;
  limit_memory(memory_stats().live_bytes + 8 * kMiB);
  const Buffer first = allocate(4 * kMiB);
  const std::string why = testing::refusal(ErrorKind::kResource, [] { allocate(6 * kMiB); });
  CHECK_NOTHROW(allocate(2 * kMiB));
  limit_memory(std::numeric_limits<int64_t>::max());
  CHECK(testing::contains(why, "cannot allocate 6.0 MiB"));
  CHECK(testing::contains(why, "available in all"));
  CHECK_NOTHROW(allocate(6 * kMiB));
}
