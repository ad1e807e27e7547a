#include "lib/runtime/generation/prompt_cache.h"

#include <algorithm>
#include <cstring>

#include "lib/base/error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"

namespace lumen::runtime {
namespace {

constexpr size_t kHashBytes = 64;

struct Header {
  char magic[8] = {'L', 'U', 'M', 'E', 'N', 'K', 'V', '\n'};
  uint32_t version = 1, zero = 0;
  uint64_t tokens = 0, position_bytes = 0;
  char fingerprint[kHashBytes] = {};
};
static_assert(sizeof(Header) == 96);

// The header of `file` if its sizes are consistent. Throws Error(kMalformed).
Header read_header(std::span<const std::byte> file) {
  Header header;
  const Header expected;
  if (file.size() < sizeof header + kHashBytes ||
      std::memcmp(file.data(), expected.magic, sizeof expected.magic) != 0) {
    fail(ErrorKind::kMalformed, "this is no prompt cache");
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (header.version != expected.version) {
    fail(ErrorKind::kMalformed, "version ", header.version, " of the format, expected ",
         expected.version);
  }
  const uint64_t content = file.size() - sizeof header - kHashBytes;
  const uint64_t each = header.position_bytes + sizeof(int32_t);
  if (each < sizeof(int32_t) || content % each != 0 || content / each != header.tokens) {
    const bool is_longer = each >= sizeof(int32_t) && content / each >= header.tokens;
    fail(ErrorKind::kMalformed, "it is ", is_longer ? "too long" : "truncated", ": ", file.size(),
         " bytes are not what ", header.tokens, " tokens take");
  }
  return header;
}

void restore(std::span<const std::byte> file, Generator& generator) {
  const Header header = read_header(file);
  LanguageModel& model = generator.model();
  if (std::string_view(header.fingerprint, kHashBytes) != model.fingerprint() ||
      header.position_bytes != model.position_bytes()) {
    fail(ErrorKind::kMismatch,
         "it was made by another model, with another --kv or, of models that rotate otherwise in "
         "long contexts, with another --ctx");
  }
  const std::string hash = io::sha256(file.first(file.size() - kHashBytes));
  if (std::memcmp(hash.data(), file.last(kHashBytes).data(), kHashBytes) != 0) {
    fail(ErrorKind::kMalformed, "its checksum is wrong: the file is damaged");
  }
  std::vector<int32_t> tokens(header.tokens);
  std::memcpy(tokens.data(), file.data() + sizeof header, tokens.size() * sizeof(int32_t));
  const auto stored = static_cast<int64_t>(tokens.size());
  const int64_t positions = std::min(stored, model.context());
  const size_t state = sizeof header + tokens.size() * sizeof(int32_t);
  model.load_state(positions, stored, file.subspan(state, file.size() - kHashBytes - state));
  generator.set_cached(std::span(tokens).first(static_cast<size_t>(positions)));
}

}  // namespace

void check_prompt_cache(const std::string& path) {
  const Header header;
  io::check_replaceable(path, {header.magic, sizeof header.magic}, "a prompt cache");
}

std::string load_prompt_cache(const std::string& path, Generator& generator) {
  if (!generator.model().keeps_positions()) {
    return "--prompt-cache is not used: a recurrent model keeps no state of past positions";
  }
  try {
    const auto buffer = io::map_file(path);
    with_context(io::place_of(path), [&] { restore({buffer->data, buffer->bytes}, generator); });
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kMissing && !io::is_regular_file(path)) return "";
    return str("the prompt cache is not used: ", error.what());
  }
  return "";
}

void save_prompt_cache(const std::string& path, Generator& generator) {
  const LanguageModel& model = generator.model();
  const std::span<const int32_t> tokens = generator.cached();
  if (tokens.empty() || !model.keeps_positions()) return;
  Header header;
  header.tokens = tokens.size();
  header.position_bytes = model.position_bytes();
  std::memcpy(header.fingerprint, model.fingerprint().data(), kHashBytes);
  io::AtomicFile file(path);
  io::Sha256 hash;
  auto write = [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    file.write(bytes);
  };
  write(std::as_bytes(std::span(&header, 1)));
  write(std::as_bytes(tokens));
  model.save_state(static_cast<int64_t>(tokens.size()), write);
  file.write(hash.hex());
  file.commit();
}

}  // namespace lumen::runtime
