#include "lib/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>

#include "lib/base/error.h"

namespace lumen {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::atomic<int64_t> live{0}, count{0};
std::atomic<int64_t> most{std::numeric_limits<int64_t>::max()};

}  // namespace

Buffer allocate(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  const int64_t used = live.load(), limit = most.load();
  const bool fits =
      rounded >= bytes && rounded <= static_cast<uint64_t>(std::max<int64_t>(limit - used, 0));
  // Whole huge pages are aligned here: what glibc aligns to them goes back to the system whenever
  // it is freed, and comes with new pages, to be cleared, the next time.
  const bool is_huge = alignment == kHugePage;
  void* const block = !fits     ? nullptr
                      : is_huge ? std::malloc(rounded + kHugePage)
                                : std::aligned_alloc(alignment, rounded);
  if (block == nullptr) {
    fail(ErrorKind::kResource, "out of memory: cannot allocate ", human_bytes(bytes), " (",
         human_bytes(static_cast<uint64_t>(used)), " in use",
         fits ? "" : str(", ", human_bytes(static_cast<uint64_t>(limit)), " available in all"),
         ")");
  }
  void* memory = block;
  if (is_huge) {
    size_t space = rounded + kHugePage;
    std::align(kHugePage, rounded, memory, space);
    madvise(memory, rounded, MADV_HUGEPAGE);
  }
  count.fetch_add(1);
  live.fetch_add(static_cast<int64_t>(rounded));
  Buffer buffer;
  buffer.data = static_cast<std::byte*>(memory);
  buffer.bytes = bytes;
  buffer.owner = std::shared_ptr<void>(block, [rounded](void* p) {
    std::free(p);
    live.fetch_sub(static_cast<int64_t>(rounded));
  });
  return buffer;
}

void limit_memory(int64_t bytes) {
  most = bytes;
}

MemoryStats memory_stats() {
  return {live.load(), count.load()};
}

}  // namespace lumen
