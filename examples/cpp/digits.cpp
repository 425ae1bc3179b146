// The digits network of examples/python/digits.py, read from the file it saved.
//
//   digits FILE
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <ClikaRT/clika_rt.h>

using ClikaRT::Tensor;
namespace ops = ClikaRT::ops;

namespace {

Tensor linear(const Tensor& x, const std::map<std::string, Tensor>& file, const std::string& name) {
    return ops::add(ops::matmul(x, file.at(name + ".weight").permute({1, 0})), file.at(name + ".bias"));
}

Tensor network(const Tensor& images, const std::map<std::string, Tensor>& file) {
    const Tensor hidden = ops::relu(linear(images, file, "network.hidden"));
    return ops::softmax(linear(hidden, file, "network.output"), -1);
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::fprintf(stderr, "usage: digits FILE\n");
        return 2;
    }
    const auto file = ClikaRT::safetensors::load(argv[1]);
    const Tensor images = file.at("data.images");

    const auto graph =
        ClikaRT::graph::trace([&](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{ops::argmax(network(inputs[0], file), ClikaRT::Shape{1})}; },
                              {images}, {"images"}, {"digits"});
    const auto traced = graph.run({images})[0].item_as_vec<std::int64_t>();
    const auto eager = ops::argmax(network(images, file), ClikaRT::Shape{1}).item_as_vec<std::int64_t>();

    const auto labels = file.at("data.labels").item_as_vec<std::int64_t>();
    const auto held_out = file.at("data.held_out").item_as_vec<bool>();
    std::uint64_t checksum = 0xCBF29CE484222325u;  // FNV-1a, one byte for each prediction
    int count = 0, right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        checksum = (checksum ^ static_cast<std::uint64_t>(eager[i])) * 0x100000001B3u;
        count += held_out[i];
        right += held_out[i] && eager[i] == labels[i];
    }
    std::printf("accuracy on the held-out third: %.4f (%d of %d)\n", static_cast<double>(right) / count, right, count);
    std::printf("eager and traced agree: %s\n", eager == traced ? "True" : "False");
    std::printf("checksum over all predictions: %016llx\n", static_cast<unsigned long long>(checksum));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
