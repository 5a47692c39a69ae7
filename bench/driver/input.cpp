// SPDX-License-Identifier: BSL-1.0
//
// The images that gradus_bench trains on: files, or noise.
#include "input.hpp"

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/cifar.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/mnist.hpp"
#ifdef GRADUS_BENCH_WITH_GZIP
#include "gradus/data/gzip.hpp"
#include "gradus/data/record_file.hpp"
#endif
#ifdef GRADUS_BENCH_WITH_JPEG
#include "gradus/data/encoded_images.hpp"
#include "gradus/data/jpeg.hpp"
#endif

namespace driver {

namespace {

namespace data = gradus::data;
namespace fs = std::filesystem;

[[noreturn]] [[maybe_unused]] void lacks(const std::string& what, const char* library) {
  throw std::invalid_argument{"--data-dir: " + what + " needs " + library +
                              ", which this gradus_bench was built without"};
}

/// Number k of an image's noise: SplitMix64, which takes a nanosecond.
std::uint64_t noise_bits(std::uint64_t key, index_t k) noexcept {
  std::uint64_t x = key + static_cast<std::uint64_t>(k) + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// Pixels and labels that are functions of the seed and the number of the example. There is nothing to learn in them.
class noise final : public input_set {
 public:
  noise(const model_properties& model, index_t examples, std::uint64_t seed)
      : model_{model}, examples_{examples}, stream_{seed, "noise"} {}

  index_t size() const override { return examples_; }
  gradus::image_extents example() const override { return model_.image.batch(1); }
  int classes() const override { return model_.classes; }
  std::uint64_t hash() const override { return stream_.key(); }
  gradus::image_extents label_map() const override {
    return labels_pixels(model_.family) ? gradus::image_extents{1, 1, model_.image.height, model_.image.width}
                                        : input_set::label_map();
  }
  void read_labels(index_t i, std::int32_t* labels) const override {
    const auto classes = static_cast<std::uint64_t>(model_.classes);
    if (!labels_pixels(model_.family)) {
      *labels = static_cast<std::int32_t>(stream_.below(classes, static_cast<std::uint64_t>(i)));
      return;
    }
    const std::uint64_t key = stream_.bits(static_cast<std::uint64_t>(i), 2);
    for (index_t k = 0; k < label_map().size(); ++k) {
      labels[k] = static_cast<std::int32_t>(noise_bits(key, k) % classes);
    }
  }
  void read(index_t i, std::uint64_t /*epoch*/, float* planes) const override {
    const std::uint64_t key = stream_.bits(static_cast<std::uint64_t>(i), 1);
    for (index_t k = 0; k < model_.image.size(); ++k) {  // from -1 to 1
      const std::uint64_t bits = noise_bits(key, k);
      planes[k] = static_cast<float>(bits >> 40U) * 0x1p-23F - 1.0F;
    }
  }
  std::string name() const override { return std::string{model_.dataset} + " (synthetic)"; }
  std::vector<std::string> problems() const override { return {}; }

 private:
  model_properties model_;
  index_t examples_;
  gradus::random_stream stream_;
};

class images_in_memory final : public input_set {
 public:
  images_in_memory(data::image_dataset set, const model_properties& model, std::string name)
      : set_{std::move(set)}, name_{std::move(name)} {
    const gradus::image_extents own = set_.example();
    if (own.h != model.image.height || own.w != model.image.width) {
      throw gradus::configuration_error{
          "--data-dir",
          {"images of ", model.image.height, " x ", model.image.width, " for ", model.name},
          {name_, " with ", own.h, " x ", own.w}};
    }
  }

  index_t size() const override { return set_.size(); }
  gradus::image_extents example() const override { return set_.example(); }
  int classes() const override { return set_.classes(); }
  std::uint64_t hash() const override { return set_.hash(); }
  void read_labels(index_t i, std::int32_t* labels) const override { *labels = set_.label(i); }
  void read(index_t i, std::uint64_t /*epoch*/, float* planes) const override { set_.read(i, planes); }
  std::string name() const override { return name_; }
  std::vector<std::string> problems() const override { return {}; }

 private:
  data::image_dataset set_;
  std::string name_;
};

#ifdef GRADUS_BENCH_WITH_JPEG
class photographs final : public input_set {
 public:
  photographs(std::unique_ptr<data::encoded_images> files, const model_properties& model, const settings& chosen,
              std::string name)
      : files_{std::move(files)},
        set_{*files_,
             {.height = model.image.height,
              .width = model.image.width,
              .seed = chosen.seed,
              .corrupt = chosen.skip_corrupt ? data::corrupt_image::skip : data::corrupt_image::fail}},
        name_{std::move(name)},
        central_{chosen.eval} {
    if (model.image.channels != 3) {
      throw gradus::configuration_error{
          "--data-dir", {"images of ", model.image.channels, " channel for ", model.name}, "photographs with 3"};
    }
  }

  index_t size() const override { return set_.size(); }
  gradus::image_extents example() const override { return set_.example(); }
  int classes() const override { return set_.classes(); }
  std::uint64_t hash() const override { return set_.hash(); }
  void read_labels(index_t i, std::int32_t* labels) const override { *labels = set_.label(i); }
  void read(index_t i, std::uint64_t epoch, float* planes) const override {
    if (central_) {
      set_.read(i, planes);
    } else {
      set_.read(i, epoch, planes);
    }
  }
  std::string name() const override { return name_; }
  std::vector<std::string> problems() const override { return set_.problems(); }

 private:
  std::unique_ptr<data::encoded_images> files_;
  data::jpeg_dataset set_;
  std::string name_;
  bool central_;  // crops of an evaluation; else random ones
};
#endif

/// What the folder or file looks like.
std::string guess_name(const std::string& path) {
  const auto has = [&](const char* name) { return fs::exists(fs::path{path} / name); };
  if (!fs::exists(path)) {
    throw std::invalid_argument{"--data-dir: there is no '" + path + "'"};
  }
  if (fs::is_regular_file(path)) {
    return "records";
  }
  if (has("train-images-idx3-ubyte") || has("train-images-idx3-ubyte.gz")) {
    return "mnist";
  }
  return has("data_batch_1.bin") ? "cifar10" : has("train.bin") ? "cifar100" : "imagenet";
}

}  // namespace

std::unique_ptr<input_set> open_input(const settings& chosen, const model_properties& model, index_t examples) {
  if (chosen.data_dir.empty()) {
    return std::make_unique<noise>(model, examples, chosen.seed);
  }
  if (labels_pixels(model.family)) {
    throw std::invalid_argument{std::string{"--data-dir: "} + model.name +
                                " learns a class for each pixel, and files have a class for each image: leave it out"};
  }
  const data::split part = chosen.eval ? data::split::test : data::split::training;
  const std::string name = chosen.data_name.empty() ? guess_name(chosen.data_dir) : chosen.data_name;
  if (name == "mnist") {
#ifdef GRADUS_BENCH_WITH_GZIP
    auto set = data::load_mnist(chosen.data_dir, part);
#else
    auto set = data::load_mnist_plain(chosen.data_dir, part);
#endif
    return std::make_unique<images_in_memory>(std::move(set), model, name);
  }
  if (name == "cifar10" || name == "cifar100") {
    const auto kind = name == "cifar10" ? data::cifar_kind::cifar10 : data::cifar_kind::cifar100;
    return std::make_unique<images_in_memory>(data::load_cifar(chosen.data_dir, kind, part), model, name);
  }
#ifdef GRADUS_BENCH_WITH_JPEG
  if (name == "records") {
#ifdef GRADUS_BENCH_WITH_GZIP
    return std::make_unique<photographs>(std::make_unique<data::record_file>(chosen.data_dir), model, chosen, name);
#else
    lacks("a record file", "zlib");
#endif
  }
  return std::make_unique<photographs>(std::make_unique<data::class_folders>(chosen.data_dir), model, chosen, name);
#else
  lacks("a folder or a file of JPEG images", "libjpeg-turbo");
#endif
}

program::output_file open_output(const char* option, const std::string& path, const settings& chosen) {
  program::output_file output{option, path};
  std::error_code ignored;
  if (output && !chosen.data_dir.empty() && fs::is_regular_file(path, ignored)) {
    output.require_not(chosen.data_dir);
    const std::string folder = fs::canonical(chosen.data_dir, ignored).string() + '/';
    if (fs::is_directory(chosen.data_dir, ignored) && fs::canonical(path, ignored).string().starts_with(folder)) {
      throw std::invalid_argument{std::string{option} + ": '" + path +
                                  "' is a file of --data-dir, which would be "
                                  "overwritten: choose another name"};
    }
  }
  return output;
}

index_t pack_images([[maybe_unused]] const settings& chosen) {
  if (chosen.data_dir.empty()) {
    throw std::invalid_argument{"pack: expected --data-dir, a folder with a folder of images for each class"};
  }
#if defined(GRADUS_BENCH_WITH_JPEG) && defined(GRADUS_BENCH_WITH_GZIP)
  const data::class_folders files{chosen.data_dir};
  program::output_file output = open_output("--output", chosen.output, chosen);
  if (std::error_code ignored; fs::exists(chosen.output, ignored)) {
    for (index_t i = 0; i < files.size(); ++i) {  // also by a link from elsewhere
      output.require_not(files.name(i));
    }
  }
  data::record_writer packed{output.unfinished(), files.classes()};
  std::vector<std::uint8_t> bytes;
  for (index_t i = 0; i < files.size(); ++i) {
    files.read(i, bytes);
    packed.add(files.label(i), fs::path{files.name(i)}.filename().string(), bytes);
  }
  packed.finish();
  output.commit();
  return files.size();
#else
  lacks("a record file", "zlib and libjpeg-turbo");
#endif
}

}  // namespace driver
