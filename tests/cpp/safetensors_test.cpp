// safetensors files: a round trip, and everything that is wrong with a file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ClikaRT/clika_rt.h>
#include <cstring>
#include <filesystem>
#include <fstream>

using namespace ClikaRT;
namespace fs = std::filesystem;

namespace {

class Safetensors : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "clikart-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string path(const char* name = "file.safetensors") const { return (folder_ / name).string(); }
    /// Writes a file of this header and this many bytes of data.
    std::string file(const std::string& header, std::size_t data, std::optional<std::uint64_t> claimed = {}) const {
        std::ofstream out(path(), std::ios::binary);
        const std::uint64_t length = claimed.value_or(header.size());
        out.write(reinterpret_cast<const char*>(&length), 8);
        out << header << std::string(data, '\1');
        return path();
    }
    std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
    fs::path folder_;
};

}  // namespace

TEST_F(Safetensors, RoundTrip) {
    const Tensor x = ops::reshape(ops::arange(0.0, 6, 1), {2, 3});
    safetensors::save(path(), {{"x", x},
                               {"transposed", x.permute({1, 0})},
                               {"scalar", ops::full({}, 7, DataType::Int64)},
                               {"flags", ops::cast(x, DataType::Bool)},
                               {"empty", ops::full({0, 3}, 1.0, DataType::Float64)},
                               {"narrow", ops::cast(x, DataType::Int32)}});
    const auto loaded = safetensors::load(path());
    ASSERT_EQ(loaded.size(), 6u);
    EXPECT_EQ(loaded.at("x").item_as_vec<float>(), x.item_as_vec<float>());
    EXPECT_EQ(loaded.at("transposed").shape(), (Shape{3, 2}));
    EXPECT_EQ(loaded.at("transposed").item_as_vec<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(loaded.at("scalar").item<std::int64_t>(), 7);
    EXPECT_EQ(loaded.at("flags").item_as_vec<bool>(), (std::vector<bool>{false, true, true, true, true, true}));
    EXPECT_EQ(loaded.at("empty").shape(), (Shape{0, 3}));
    EXPECT_EQ(loaded.at("narrow").dtype(), DataType::Int32);
    EXPECT_EQ(entries(), 1u);  // no temporary file is left
}

TEST_F(Safetensors, HostileFilesAreRefused) {
    const std::int64_t before = clikart_memory_current();
    const auto one = [](const std::string& shape, const std::string& range, const std::string& dtype = "F32") {
        return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range + "}}";
    };
    EXPECT_EQ(safetensors::load(file(one("[2]", "[0,8]"), 8)).size(), 1u);
    EXPECT_EQ(safetensors::load(file("{\"__metadata__\":{\"a\":\"b\"}}", 0)).size(), 0u);
    const std::pair<std::string, std::size_t> files[] = {
        {one("[2]", "[0,8]"), 7},                                  // truncated
        {one("[2]", "[0,8]"), 9},                                  // bytes nobody describes
        {one("[2]", "[0,4]"), 4},                                  // range and shape differ
        {one("[2]", "[8,0]"), 8},                                  // backwards
        {one("[2]", "[4,12]"), 12},                                // a hole
        {one("[4294967296,4294967296]", "[0,0]"), 0},              // 2^64 elements wrap to 0
        {one("[9223372036854775807,2]", "[0,8]"), 8},              // overflow
        {one("[18446744073709551615]", "[0,8]"), 8},               // beyond 63 bits
        {one("[99999999999999999999999]", "[0,8]"), 8},            // beyond 64 bits
        {one("[-2]", "[0,8]"), 8},                                 // negative
        {one("[2.0]", "[0,8]"), 8},                                // not an integer
        {one("[2]", "[0,18446744073709551615]"), 8},               // a range of everything
        {one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]"), 8},  // 17 dimensions
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8},          // no range
        {"{\"t\":3}", 0},
        {"[]", 0},
        {"{\"t\":", 0},
        {"", 0},
        {std::string(100000, '['), 0},
        {std::string("{\"a\":") + std::string(100000, '{'), 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12},  // overlap
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},    // twice
    };
    for (const auto& [header, data] : files) EXPECT_THROW(safetensors::load(file(header, data)), ValueError) << header.substr(0, 120);
    EXPECT_THROW(safetensors::load(file(one("[2]", "[0,8]", "C128"), 8)), TypeError);
    EXPECT_THROW(safetensors::load(file("{}", 0, 3)), ValueError);           // header past the end
    EXPECT_THROW(safetensors::load(file("{}", 0, UINT64_MAX)), ValueError);  // header length overflows
    std::ofstream(path("short")) << "1234";
    EXPECT_THROW(safetensors::load(path("short")), ValueError);
    EXPECT_THROW(safetensors::load(path("absent")), FileError);
    EXPECT_THROW(safetensors::load(folder_.string()), FileError);
    EXPECT_EQ(clikart_memory_current(), before);
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
    safetensors::save(path(), {{"a", ops::full({5}, 1.0)}, {"b", ops::full({3}, 2, DataType::Int64)}});
    std::ifstream in(path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    for (std::size_t n = 0; n < bytes.size(); ++n) {
        std::ofstream(path("cut"), std::ios::binary) << bytes.substr(0, n);
        EXPECT_THROW(safetensors::load(path("cut")), ValueError) << n;
    }
}

TEST_F(Safetensors, AFailedSaveLeavesTheOldFileAndNothingElse) {
    const Tensor x = ops::full({2}, 1.0);
    safetensors::save(path(), {{"x", x}});
    EXPECT_THROW(safetensors::save(path(), {{"", x}}), ValueError);
    EXPECT_THROW(safetensors::save(path(), {{"x", x}, {"bad", ops::full({std::int64_t{1} << 50}, 1.0)}}), MemoryError);
    EXPECT_THROW(safetensors::save(path(), {{"\xff\xfe", x}}), ValueError);
    EXPECT_EQ(safetensors::load(path()).size(), 1u);
    EXPECT_THROW(safetensors::save(path("no/such/folder"), {{"x", x}}), FileError);
    EXPECT_THROW(safetensors::save(folder_.string(), {{"x", x}}), FileError);
    EXPECT_EQ(entries(), 1u);
}
