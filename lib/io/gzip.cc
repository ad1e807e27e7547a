#include "lib/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "lib/base/error.h"

namespace lumen::io {
namespace {

// zlib's state, released on every way out.
class Inflater {
 public:
  Inflater() {
    constexpr int kGzipWindow = 15 + 16;  // the largest window, with a gzip header
    if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
      fail(ErrorKind::kResource, "no memory to unpack a gzip file");
    }
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream = {};
};

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

std::string gunzip(std::span<const std::byte> bytes, uint64_t max_bytes) {
  constexpr size_t kPiece = 1 << 20, kMostAtOnce = 1 << 30;  // zlib counts with 32 bits
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::string out;
  if (bytes.size() > 18) {
    // The last member ends with its size modulo 2³². It is believed as far as the format can
    // compress, which saves growing step by step.
    constexpr uint64_t kBestRatio = 1032;
    uint32_t size;
    std::memcpy(&size, bytes.data() + bytes.size() - 4, sizeof size);
    out.resize(std::min({uint64_t{size} + 1, max_bytes + 1, kBestRatio * bytes.size()}));
  }
  size_t used = 0, filled = 0;
  for (;;) {
    const size_t room = std::min<uint64_t>(std::clamp(out.size() - filled, kPiece, kMostAtOnce),
                                           max_bytes + 1 - filled);
    if (out.size() < filled + room) out.resize(std::max(filled + room, out.size() * 3 / 2));
    const size_t given = std::min<size_t>(bytes.size() - used, kMostAtOnce);
    stream.next_in =
        reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + used));  // zlib's old type
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    const size_t before = used;
    used += given - stream.avail_in;
    filled += room - stream.avail_out;
    if (filled > max_bytes) {
      fail(ErrorKind::kMalformed, "the gzip file holds more than the limit of ", max_bytes,
           " bytes");
    }
    if (result == Z_STREAM_END) {
      if (used == bytes.size()) break;
      if (!is_gzip(bytes.subspan(used))) {
        fail(ErrorKind::kMalformed, "byte ", used, ": ", bytes.size() - used,
             " bytes follow the end of the gzip data");
      }
      inflateReset(&stream);
    } else if (result == Z_MEM_ERROR) {
      fail(ErrorKind::kResource, "no memory to unpack a gzip file");
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(ErrorKind::kMalformed, "byte ", used, ": the gzip data are corrupt (",
           stream.msg != nullptr ? stream.msg : "unexpected end", ")");
    } else if (used == bytes.size() && stream.avail_out != 0 && used == before) {
      fail(ErrorKind::kMalformed, "the gzip data end after ", used,
           " bytes in the middle of the content (an interrupted download?)");
    }
  }
  out.resize(filled);
  return out;
}

}  // namespace lumen::io
