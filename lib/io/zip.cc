#include "lib/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"

namespace lumen::io {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50,
                   kArchiveEnd = 0x06054b50, kArchiveEnd64 = 0x06064b50, kEnd64Place = 0x07064b50;
constexpr uint64_t kEndBytes = 22, kEnd64PlaceBytes = 20, kEnd64Bytes = 56;
constexpr uint16_t kEncrypted = 1, kSizesFollow = 8;  // flags of an entry
constexpr uint16_t kSizes64 = 1;                      // an extra field
constexpr uint16_t kMax16 = std::numeric_limits<uint16_t>::max();
constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();  // "see the 64-bit field"
// Behind the data of an entry with kSizesFollow: signature, CRC and two sizes of 64 bits.
constexpr uint64_t kMaxDescriptorBytes = 24;

using ZipBytes = std::span<const std::byte>;

// The directory of the archive: bytes [offset, offset + bytes) of the file.
struct ZipDirectory {
  uint64_t entries = 0, offset = 0, bytes = 0;
};

ByteReader zip_reader_at(ZipBytes all, uint64_t offset) {
  ByteReader reader(all);
  reader.skip(offset);
  return reader;
}

// The directory's place as the 64-bit record says it, which ends at `end`.
ZipDirectory read_end64(ZipBytes all, uint64_t place, uint64_t end) {
  ByteReader locator = zip_reader_at(all, place + sizeof kEnd64Place);
  const auto disk = locator.read<uint32_t>();
  const auto offset = locator.read<uint64_t>();
  const auto disks = locator.read<uint32_t>();
  if (disk != 0 || disks != 1 || end < kEnd64Bytes || offset != end - kEnd64Bytes) {
    fail(ErrorKind::kMalformed, "byte ", place, ": the 64-bit end of the archive at ", offset,
         " is not where it must be");
  }
  ByteReader reader = zip_reader_at(all, offset);
  const auto signature = reader.read<uint32_t>();
  const auto record_bytes = reader.read<uint64_t>();
  reader.skip(4);  // versions
  const auto this_disk = reader.read<uint32_t>(), first_disk = reader.read<uint32_t>();
  const auto here = reader.read<uint64_t>();
  ZipDirectory directory;
  directory.entries = reader.read<uint64_t>();
  directory.bytes = reader.read<uint64_t>();
  directory.offset = reader.read<uint64_t>();
  if (signature != kArchiveEnd64 || record_bytes != kEnd64Bytes - 12 || this_disk != 0 ||
      first_disk != 0 || here != directory.entries) {
    fail(ErrorKind::kMalformed, "byte ", offset, ": the 64-bit end of the archive is broken");
  }
  return directory;
}

ZipDirectory find_zip_directory(ZipBytes all) {
  if (all.size() < kEndBytes) {
    fail(ErrorKind::kMalformed, "a zip archive of ", all.size(), " bytes (truncated download?)");
  }
  const uint64_t at = all.size() - kEndBytes;
  ByteReader reader = zip_reader_at(all, at);
  if (reader.read<uint32_t>() != kArchiveEnd) {
    fail(ErrorKind::kMalformed, "the zip archive's directory is not at the end of the file's ",
         all.size(), " bytes (truncated download?)");
  }
  const auto disk = reader.read<uint16_t>(), first_disk = reader.read<uint16_t>();
  const auto here = reader.read<uint16_t>();
  ZipDirectory directory;
  directory.entries = reader.read<uint16_t>();
  directory.bytes = reader.read<uint32_t>();
  directory.offset = reader.read<uint32_t>();
  const auto comment = reader.read<uint16_t>();
  if (disk != 0 || first_disk != 0 || here != directory.entries || comment != 0) {
    fail(ErrorKind::kMalformed, "byte ", at, ": the end of the archive is broken");
  }
  uint64_t end = at;
  if (at >= kEnd64PlaceBytes &&
      zip_reader_at(all, at - kEnd64PlaceBytes).read<uint32_t>() == kEnd64Place) {
    const ZipDirectory wide = read_end64(all, at - kEnd64PlaceBytes, at - kEnd64PlaceBytes);
    const auto agree = [](uint64_t narrow, uint64_t max, uint64_t value) {
      return narrow == max || narrow == value;
    };
    if (!agree(directory.entries, kMax16, wide.entries) ||
        !agree(directory.bytes, kMax32, wide.bytes) ||
        !agree(directory.offset, kMax32, wide.offset)) {
      fail(ErrorKind::kMalformed, "byte ", at, ": the two ends of the archive disagree");
    }
    directory = wide;
    end = at - kEnd64PlaceBytes - kEnd64Bytes;
  }
  if ((Checked(directory.offset) + directory.bytes).value() != end) {
    fail(ErrorKind::kMalformed, "byte ", at, ": the archive's directory has ", directory.bytes,
         " bytes at ", directory.offset, ", but ends at ", end);
  }
  return directory;
}

// Sizes and offset of an entry that do not fit 32 bits, from its extra fields, in this order.
void read_sizes64(ByteReader extra, std::initializer_list<uint64_t*> numbers) {
  while (extra.remaining() > 0) {
    const auto id = extra.read<uint16_t>();
    const auto bytes = extra.read<uint16_t>();
    ByteReader field(extra.bytes(bytes));
    if (id != kSizes64) continue;
    for (uint64_t* number : numbers) {
      if (*number == kMax32) *number = field.read<uint64_t>();
    }
    return;
  }
}

// An entry and where its local header begins.
struct PlacedEntry {
  ZipEntry entry;
  uint64_t header = 0;
  bool has_descriptor = false;
};

// What precedes the name of an entry before its data.
struct LocalHeader {
  uint32_t signature = 0, crc = 0, packed = 0, bytes = 0;
  uint16_t flags = 0, method = 0, name_bytes = 0, extra_bytes = 0;
};
constexpr uint64_t kLocalHeaderBytes = 30;

LocalHeader read_fixed_part(ByteReader& reader) {
  LocalHeader header;
  header.signature = reader.read<uint32_t>();
  reader.skip(2);  // version
  header.flags = reader.read<uint16_t>();
  header.method = reader.read<uint16_t>();
  reader.skip(4);  // time
  header.crc = reader.read<uint32_t>();
  header.packed = reader.read<uint32_t>();
  header.bytes = reader.read<uint32_t>();
  header.name_bytes = reader.read<uint16_t>();
  header.extra_bytes = reader.read<uint16_t>();
  return header;
}

// Checks the header before the data against the directory, and sets where the data begin.
void read_local_header(ZipBytes all, uint64_t end, uint16_t flags, PlacedEntry& placed) {
  if (placed.header >= end) {
    fail(ErrorKind::kMalformed, "its data begin at ", placed.header, ", behind the directory");
  }
  ByteReader reader = zip_reader_at(all.first(end), placed.header);
  const LocalHeader header = read_fixed_part(reader);
  const std::string_view name = reader.text(header.name_bytes);
  reader.skip(header.extra_bytes);
  const auto is_same = [&](uint64_t local, uint64_t value) {
    return local == value || local == kMax32 || (placed.has_descriptor && local == 0);
  };
  if (header.signature != kLocalHeader || header.flags != flags || header.method != 0 ||
      name != placed.entry.name || !is_same(header.packed, placed.entry.bytes) ||
      !is_same(header.bytes, placed.entry.bytes) || !is_same(header.crc, placed.entry.crc32)) {
    fail(ErrorKind::kMalformed, "byte ", placed.header,
         ": what precedes its data differs from the directory");
  }
  placed.entry.offset = reader.offset();
  if (placed.entry.bytes > reader.remaining()) {
    fail(ErrorKind::kMalformed, "its ", placed.entry.bytes, " bytes at ", reader.offset(),
         " run into the directory at ", end);
  }
}

PlacedEntry read_zip_entry(ZipBytes all, uint64_t end, ByteReader& reader) {
  const uint64_t at = reader.offset();
  if (reader.read<uint32_t>() != kDirectoryEntry) {
    fail(ErrorKind::kMalformed, "byte ", end + at, ": no entry of the archive's directory");
  }
  reader.skip(4);  // versions
  const auto flags = reader.read<uint16_t>(), method = reader.read<uint16_t>();
  reader.skip(4);  // time
  PlacedEntry placed;
  placed.entry.crc32 = reader.read<uint32_t>();
  uint64_t packed = reader.read<uint32_t>();
  placed.entry.bytes = reader.read<uint32_t>();
  const auto name_bytes = reader.read<uint16_t>(), extra_bytes = reader.read<uint16_t>();
  const auto comment = reader.read<uint16_t>(), disk = reader.read<uint16_t>();
  reader.skip(6);  // attributes
  placed.header = reader.read<uint32_t>();
  placed.entry.name = reader.text(name_bytes);
  read_sizes64(ByteReader(reader.bytes(extra_bytes)),
               {&placed.entry.bytes, &packed, &placed.header});
  placed.has_descriptor = (flags & kSizesFollow) != 0;
  with_context([&] { return str("zip entry ", quoted(placed.entry.name)); },
               [&] {
                 if ((flags & kEncrypted) != 0) fail(ErrorKind::kUnsupported, "is encrypted");
                 if (method != 0) {
                   fail(ErrorKind::kUnsupported, "is compressed (method ", method,
                        "); torch.save stores its entries");
                 }
                 if (packed != placed.entry.bytes || comment != 0 || disk != 0) {
                   fail(ErrorKind::kMalformed, "its entry in the archive's directory is broken");
                 }
                 read_local_header(all, end, flags, placed);
               });
  return placed;
}

// The entries must fill the file from its beginning to the directory: nothing else hides there.
void check_places(const std::vector<PlacedEntry>& entries, uint64_t end) {
  uint64_t expected = 0;
  bool has_descriptor = false;
  const auto check = [&](uint64_t begin, std::string_view what) {
    if (begin < expected || begin - expected > (has_descriptor ? kMaxDescriptorBytes : 0)) {
      fail(ErrorKind::kMalformed, what, " begins at byte ", begin, ", expected ", expected,
           " (overlap or hole)");
    }
  };
  for (const PlacedEntry& placed : entries) {
    check(placed.header, str("zip entry ", quoted(placed.entry.name)));
    expected = placed.entry.offset + placed.entry.bytes;
    has_descriptor = placed.has_descriptor;
  }
  check(end, "the archive's directory");
}

}  // namespace

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const uint32_t found =
      index.find(name, [&](uint32_t i) -> std::string_view { return entries[i].name; });
  return found == NameIndex::kNone ? nullptr : &entries[found];
}

std::string_view ZipArchive::data(const ZipEntry& entry) const {
  return {reinterpret_cast<const char*>(buffer->data + entry.offset),
          static_cast<size_t>(entry.bytes)};
}

std::string_view ZipArchive::checked_data(const ZipEntry& entry) const {
  const std::string_view bytes = data(entry);
  const auto crc = static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  if (entry.crc32 != 0 && crc != entry.crc32) {
    fail(ErrorKind::kMalformed, "zip entry ", quoted(entry.name),
         ": its checksum is wrong; the file is damaged");
  }
  return bytes;
}

std::string_view first_zip_entry(std::span<const std::byte> file) {
  if (file.size() < kLocalHeaderBytes) return "";
  ByteReader reader(file);
  const LocalHeader header = read_fixed_part(reader);
  if (header.signature != kLocalHeader) return "";
  return reader.text(std::min<uint64_t>(header.name_bytes, reader.remaining()));
}

ZipArchive parse_zip(std::shared_ptr<const Buffer> buffer) {
  const ZipBytes all(buffer->data, buffer->bytes);
  const ZipDirectory directory = find_zip_directory(all);
  ByteReader reader(all.subspan(directory.offset, directory.bytes));
  constexpr uint64_t kMinEntryBytes = 46;
  reader.expect_items(directory.entries, kMinEntryBytes, "entries");
  if (directory.entries > limits::kZipEntries) {
    fail(ErrorKind::kMalformed, directory.entries, " zip entries; the limit is ",
         limits::kZipEntries);
  }
  std::vector<PlacedEntry> placed;
  placed.reserve(directory.entries);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    placed.push_back(read_zip_entry(all, directory.offset, reader));
  }
  if (reader.remaining() != 0) {
    fail(ErrorKind::kMalformed, "the archive's directory has ", reader.remaining(),
         " bytes behind its last entry");
  }
  std::sort(placed.begin(), placed.end(),
            [](const PlacedEntry& a, const PlacedEntry& b) { return a.header < b.header; });
  check_places(placed, directory.offset);
  ZipArchive archive;
  archive.buffer = std::move(buffer);
  archive.index = NameIndex(placed.size());
  const auto name_of = [&](uint32_t i) -> std::string_view { return archive.entries[i].name; };
  for (PlacedEntry& one : placed) {
    archive.entries.push_back(std::move(one.entry));
    const auto number = static_cast<uint32_t>(archive.entries.size() - 1);
    if (archive.index.insert(name_of(number), number, name_of) != NameIndex::kNone) {
      fail(ErrorKind::kMalformed, "zip entry ", quoted(name_of(number)), " is there twice");
    }
  }
  return archive;
}

}  // namespace lumen::io
