#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/dtype_table.h"

namespace clikart::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

using Json = nlohmann::json;

class File {
public:
    File(const std::string& path, int flags, mode_t mode = 0) : path_(path), descriptor_(open(path.c_str(), flags | O_CLOEXEC, mode)) {
        if (descriptor_ < 0) refuse(flags & O_CREAT ? "cannot be written" : "cannot be opened");
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
    }

    uint64_t size() const {
        struct stat status;
        if (fstat(descriptor_, &status) != 0) refuse("cannot be examined");
        if (!S_ISREG(status.st_mode)) fail(ErrorKind::File, "safetensors: '{}' is not a regular file", path_);
        return static_cast<uint64_t>(status.st_size);
    }
    /// The whole file, which is not empty, to be read only.
    void* map(uint64_t bytes) const {
        if (bytes == 0) fail(ErrorKind::Value, "safetensors: '{}' is too short to be a safetensors file", path_);
        void* const data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor_, 0);
        if (data == MAP_FAILED) refuse("cannot be mapped");
        return data;
    }
    void read(void* to, uint64_t bytes, uint64_t offset) const {
        auto* at = static_cast<char*>(to);
        while (bytes > 0) {
            const ssize_t n = pread(descriptor_, at, std::min<uint64_t>(bytes, 1 << 30), static_cast<off_t>(offset));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) refuse("cannot be read");
            if (n == 0) fail(ErrorKind::Value, "safetensors: '{}' became shorter while it was read", path_);
            at += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<uint64_t>(n);
        }
    }
    void write(const void* from, uint64_t bytes) const {
        const auto* at = static_cast<const char*>(from);
        while (bytes > 0) {
            const ssize_t n = ::write(descriptor_, at, std::min<uint64_t>(bytes, 1 << 30));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) refuse("cannot be written");
            at += n, bytes -= static_cast<uint64_t>(n);
        }
    }
    void finish() {
        const int descriptor = std::exchange(descriptor_, -1);
        if (fsync(descriptor) != 0 && errno != EINVAL) {
            close(descriptor);
            refuse("cannot be written");
        }
        if (close(descriptor) != 0) refuse("cannot be written");
    }

private:
    [[noreturn]] void refuse(const char* what) const { fail(ErrorKind::File, "safetensors: '{}' {}: {}", path_, what, std::strerror(errno)); }
    const std::string path_;
    int descriptor_;
};

DType dtype_of(std::string_view text, const std::string& name) {
    for (size_t code = 1; code < std::size(dtype_table); ++code) {
        if (!text.empty() && dtype_table[code].safetensors == text) return static_cast<DType>(code);
    }
    fail(ErrorKind::Type, "safetensors: tensor '{}' has the unknown dtype '{}'", name, text.substr(0, 32));
}

uint64_t unsigned_integer(const Json& value, const std::string& name, const char* what) {
    if (!value.is_number_unsigned()) fail(ErrorKind::Value, "safetensors: {} of tensor '{}' is not a list of non-negative integers", what, name);
    return value.get<uint64_t>();
}

struct Record {
    std::string name;
    DType dtype;
    Dims shape;
    uint64_t begin, end;
};

Record parse_record(const std::string& name, const Json& value) {
    if (name.empty() || name.find('\0') != std::string::npos) fail(ErrorKind::Value, "safetensors: a tensor has an empty name, or one with a zero byte");
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") || !value["dtype"].is_string() ||
        !value["shape"].is_array() || !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
        fail(ErrorKind::Value, "safetensors: the entry of tensor '{}' lacks dtype, shape or data_offsets", name);
    }
    Record record{name, dtype_of(value["dtype"].get_ref<const std::string&>(), name), {}, 0, 0};
    for (const Json& size : value["shape"]) {
        const uint64_t n = unsigned_integer(size, name, "shape");
        if (n > INT64_MAX) fail(ErrorKind::Value, "safetensors: shape of tensor '{}' overflows", name);
        record.shape.push_back(static_cast<int64_t>(n));
    }
    record.begin = unsigned_integer(value["data_offsets"][0], name, "data_offsets");
    record.end = unsigned_integer(value["data_offsets"][1], name, "data_offsets");
    const auto bytes = static_cast<uint64_t>(bytes_of(record.dtype, checked_numel(record.shape, "safetensors")));
    if (record.end < record.begin || record.end - record.begin != bytes) {
        fail(ErrorKind::Value, "safetensors: tensor '{}' {} of dtype {} needs {} bytes, its range [{}, {}] has another size", name, to_string(record.shape),
             name_of(record.dtype), bytes, record.begin, record.end);
    }
    return record;
}

/// Looks through JSON text for what the parser would let pass: keys that come twice (it keeps the last), deep nesting.
struct KeyCheck final : nlohmann::json_sax<Json> {
    std::string problem;
    std::vector<std::unordered_set<std::string>> keys;

    bool open() {
        constexpr size_t kDeepest = 8;  // three would do
        if (keys.size() >= kDeepest) problem = "is nested too deeply";
        keys.emplace_back();
        return problem.empty();
    }
    bool close() {
        keys.pop_back();
        return true;
    }
    bool start_object(size_t) override { return open(); }
    bool end_object() override { return close(); }
    bool start_array(size_t) override { return open(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        if (!keys.back().insert(name).second) problem = fmt::format("names '{}' twice", name.substr(0, 200));
        return problem.empty();
    }
    bool parse_error(size_t, const std::string&, const Json::exception& error) override {
        problem = fmt::format("is not JSON: {}", std::string_view(error.what()).substr(0, 200));
        return false;
    }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
};

/// The header's entries in the order of their data, which must be covered without holes and overlaps.
std::vector<Record> parse_header(const std::string& path, std::string_view text, uint64_t data_bytes, Metadata* metadata) {
    KeyCheck check;
    Json header;
    try {
        if (Json::sax_parse(text, &check)) header = Json::parse(text);
    } catch (const Json::exception& error) {
        fail(ErrorKind::Value, "safetensors: the header of '{}' is not JSON: {}", path, std::string_view(error.what()).substr(0, 200));
    }
    if (!check.problem.empty()) fail(ErrorKind::Value, "safetensors: the header of '{}' {}", path, check.problem);
    if (!header.is_object()) fail(ErrorKind::Value, "safetensors: the header of '{}' is not a JSON object", path);
    std::vector<Record> records;
    for (const auto& [name, value] : header.items()) {
        if (name != kMetadata) {
            records.push_back(parse_record(name, value));
        } else if (metadata) {
            for (const auto& [key, text_of_key] : value.items()) {
                if (text_of_key.is_string()) metadata->emplace(key, text_of_key.get<std::string>());
            }
        }
    }
    std::stable_sort(records.begin(), records.end(),
                     [](const Record& a, const Record& b) { return a.begin < b.begin || (a.begin == b.begin && a.end < b.end); });
    uint64_t at = 0;
    for (const Record& record : records) {
        if (record.begin != at) fail(ErrorKind::Value, "safetensors: in '{}' the data of tensor '{}' leaves a hole or overlaps another's", path, record.name);
        at = record.end;
    }
    if (at != data_bytes) fail(ErrorKind::Value, "safetensors: '{}' has {} bytes of data, its header describes {}", path, data_bytes, at);
    return records;
}

/// Where the data begins, and what is there.
struct Contents {
    uint64_t data;
    std::vector<Record> records;
};

Contents read_header(const std::string& path, const File& file, uint64_t size, Metadata* metadata) {
    uint64_t header_bytes = 0;
    if (size < sizeof header_bytes) fail(ErrorKind::Value, "safetensors: '{}' is too short to be a safetensors file", path);
    file.read(&header_bytes, sizeof header_bytes, 0);
    if (header_bytes > kLargestHeader || header_bytes > size - sizeof header_bytes) {
        fail(ErrorKind::Value, "safetensors: '{}' claims a header of {} bytes and has {} in all", path, header_bytes, size);
    }
    std::string text(header_bytes, '\0');
    file.read(text.data(), header_bytes, sizeof header_bytes);
    const uint64_t data = sizeof header_bytes + header_bytes;
    return {data, parse_header(path, text, size - data, metadata)};
}

Ref<Tensor> read(const File& file, uint64_t data, const Record& record) {
    Ref<Tensor> tensor = make_tensor(record.dtype, record.shape, Device{});
    tensor->born_with_data = true;
    tensor->storage().materialize();
    file.read(tensor->storage().data(), record.end - record.begin, data + record.begin);
    if (record.dtype == DType::Bool) normalize_bools(*tensor);
    return tensor;
}

/// A whole file in memory, as long as any tensor looks at it.
class Mapping {
public:
    explicit Mapping(const std::string& path) : file_(path, O_RDONLY), bytes_(file_.size()), data_(file_.map(bytes_)) {}
    ~Mapping() { munmap(data_, bytes_); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    const File& file() const noexcept { return file_; }
    char* data() const noexcept { return static_cast<char*>(data_); }
    uint64_t bytes() const noexcept { return bytes_; }

private:
    const File file_;
    const uint64_t bytes_;
    void* const data_;
};

}  // namespace

std::vector<Entry> load(const std::string& path) {
    const File file(path, O_RDONLY);
    const Contents contents = read_header(path, file, file.size(), nullptr);
    std::vector<Entry> entries;
    for (const Record& record : contents.records) entries.push_back({record.name, read(file, contents.data, record)});
    return entries;
}

std::vector<Entry> map(const std::string& path, Metadata& metadata) {
    const auto mapping = std::make_shared<const Mapping>(path);
    const Contents contents = read_header(path, mapping->file(), mapping->bytes(), &metadata);
    std::vector<Entry> entries;
    for (const Record& record : contents.records) {
        char* const place = mapping->data() + contents.data + record.begin;
        const uint64_t bytes = record.end - record.begin;
        // A bool may be any byte in a file.
        const bool copied = bytes == 0 || record.dtype == DType::Bool || reinterpret_cast<uintptr_t>(place) % static_cast<uint64_t>(size_of(record.dtype)) != 0;
        if (copied) {
            entries.push_back({record.name, read(mapping->file(), contents.data, record)});
            continue;
        }
        auto keeper = std::make_unique<std::shared_ptr<const Mapping>>(mapping);
        Ref<Storage> storage = Storage::borrow(place, static_cast<int64_t>(bytes), Device{}, false);
        storage->set_stays();
        storage->set_lender({[](void* context) { delete static_cast<std::shared_ptr<const Mapping>*>(context); }, keeper.release()});
        entries.push_back({record.name, make_ref<Tensor>(record.dtype, record.shape, contiguous_strides(record.shape), 0, std::move(storage))});
        entries.back().tensor->born_with_data = true;
    }
    return entries;
}

void save(const std::string& path, const std::vector<Entry>& entries, const Metadata& metadata) {
    Json header = Json::object();
    if (!metadata.empty()) header[kMetadata] = metadata;
    // Widest elements first, so that every tensor begins on a multiple of its element's size.
    std::vector<const Entry*> order;
    for (const Entry& entry : entries) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return size_of(a->tensor->dtype()) > size_of(b->tensor->dtype()); });
    uint64_t at = 0;
    for (const Entry* entry : order) {
        const Tensor& t = *entry->tensor;
        if (entry->name.empty() || entry->name == kMetadata) fail(ErrorKind::Value, "save: '{}' cannot be the name of a tensor", entry->name);
        if (header.contains(entry->name)) fail(ErrorKind::Value, "save: two tensors are named '{}'", entry->name);
        if (dtype_info(t.dtype()).safetensors.empty()) {
            fail(ErrorKind::Type, "save: tensor '{}' is {}, which safetensors files cannot hold", entry->name, name_of(t.dtype()));
        }
        const auto bytes = static_cast<uint64_t>(bytes_of(t.dtype(), t.numel()));
        header[entry->name] = {{"dtype", dtype_info(t.dtype()).safetensors},
                               {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
                               {"data_offsets", {at, at + bytes}}};
        at += bytes;
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const Json::exception& error) {
        fail(ErrorKind::Value, "save: a tensor's name is not UTF-8: {}", error.what());
    }
    // The data begins on a border that kernels like.
    constexpr size_t border = 64;
    text.resize((sizeof(uint64_t) + text.size() + border - 1) / border * border - sizeof(uint64_t), ' ');
    const uint64_t header_bytes = text.size();
    if (header_bytes > kLargestHeader) fail(ErrorKind::Value, "save: the header would take {} bytes, the format has at most {}", header_bytes, kLargestHeader);

    // Under a name of its own, so that two savers of one path do not meet in one file.
    static std::atomic<uint64_t> saves{0};
    const std::string temporary = fmt::format("{}.{}.{}.part", path, getpid(), saves.fetch_add(1, std::memory_order_relaxed));
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    try {
        file.write(&header_bytes, sizeof header_bytes);
        file.write(text.data(), text.size());
        for (const Entry* entry : order) {
            const Tensor& t = *entry->tensor;
            file.write(t.data(), static_cast<uint64_t>(bytes_of(t.dtype(), t.numel())));
        }
        file.finish();
        if (rename(temporary.c_str(), path.c_str()) != 0) fail(ErrorKind::File, "save: '{}' cannot be written: {}", path, std::strerror(errno));
    } catch (...) {
        unlink(temporary.c_str());
        throw;
    }
}

}  // namespace clikart::safetensors
