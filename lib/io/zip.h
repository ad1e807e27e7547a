// Zip archives whose entries are stored, not compressed, as torch.save writes them.
// Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (sections 4.3 to 4.5).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/name_index.h"
#include "lib/tensor/array.h"

namespace lumen::io {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of the data, from the start of the file
  uint64_t bytes = 0;
  uint32_t crc32 = 0;  // of the data, as the archive states it; 0 where the writer left it out
};

// An open archive. Immutable; nothing is ever extracted.
struct ZipArchive {
  std::shared_ptr<const Buffer> buffer;
  std::vector<ZipEntry> entries;  // in the order of their data
  NameIndex index;

  const ZipEntry* find(std::string_view name) const;
  std::string_view data(const ZipEntry& entry) const;
  // data(), after comparing it with its CRC-32. Throws Error(kMalformed).
  std::string_view checked_data(const ZipEntry& entry) const;
};

// Reads the directory of an archive; the data of its entries are not touched. Stricter than the
// format, so that no two programs can see different archives in one file. Refuses with
// Error(kMalformed) naming the place: an archive that does not begin with its first entry and end
// with its directory, comments, several disks, counts and offsets that do not fit, entries that
// overlap or lie apart, a name that is there twice, a header before an entry that says something
// else than the directory, limits.h; with kUnsupported: compressed and encrypted entries.
ZipArchive parse_zip(std::shared_ptr<const Buffer> buffer);

// The name of the entry that a file begins with, or what the file has of it; "" if it begins with
// none. The file need not be an archive that parse_zip takes.
std::string_view first_zip_entry(std::span<const std::byte> file);

}  // namespace lumen::io
