#include "lib/io/gzip.h"

#include <zlib.h>

#include "lib/base/testing.h"
#include "lib/io/sha256.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

std::string gzip(std::string_view text) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string unpacked(const std::string& packed, uint64_t limit = 1 << 30) {
  return gunzip(std::as_bytes(std::span(packed)), limit);
}

TEST_CASE("gzip gives back what was packed") {
  for (const size_t size : {0u, 1u, 1000u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 3000000u}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * i) >> 7);
    CHECK(unpacked(gzip(text)) == text);
    CHECK(unpacked(gzip(text), size) == text);
  }
  CHECK(unpacked(gzip("two ") + gzip("members")) == "two members");
}

TEST_CASE("broken gzip files are refused with a reason") {
  const std::string good = gzip(std::string(5000, 'x') + "end");
  for (size_t size = 2; size < good.size(); ++size) {
    const std::string why = refusal(ErrorKind::kMalformed, [&] { unpacked(good.substr(0, size)); });
    CHECK(contains(why, "gzip data"));
  }
  std::string corrupt = good;
  corrupt[corrupt.size() - 6] ^= 1;  // the checksum
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { unpacked(corrupt); }), "corrupt"));
  CHECK(
      contains(refusal(ErrorKind::kMalformed, [&] { unpacked(good + "junk"); }), "4 bytes follow"));
  CHECK(
      contains(refusal(ErrorKind::kMalformed, [&] { unpacked(good, 5002); }), "the limit of 5002"));
}

TEST_CASE("SHA-256 agrees with the examples of FIPS 180-4") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1000000, 'a');
  Sha256 pieces;
  for (size_t at = 0, step = 1; at < million.size(); at += step, step = step * 2 % 1009) {
    pieces.update(std::string_view(million).substr(at, step));
  }
  CHECK(pieces.hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace lumen::io
