// DQN's three convolutions on a batch of pictures, and their gradients.
//
// A picture goes through all layers in one thread, so that what one layer writes is in the cache when the next reads it.
// No patches are made: those of neighbouring pixels overlap, and runs of them are contiguous where they are.

#include "common.h"

namespace {

namespace ffi = xla::ffi;
using Bytes = ffi::Buffer<ffi::U8>;
using Floats = ffi::Buffer<ffi::F32>;

// A convolution of a square picture [width, width, channels], without padding.
struct Shape {
  int width, channels;
  int kernel, stride;
  int out_width, outputs;

  // A patch is `kernel` runs of so many contiguous numbers, each in another row of the picture.
  constexpr int run() const { return kernel * channels; }
  constexpr int taps() const { return kernel * run(); }
  constexpr int row() const { return width * channels; }
  constexpr int in_size() const { return width * row(); }
  constexpr int pixels() const { return out_width * out_width; }
  constexpr int out_size() const { return pixels() * outputs; }
  constexpr int parameters() const { return (taps() + 1) * outputs; }
  // Where the patch of a pixel begins.
  constexpr int patch(int pixel) const {
    return (pixel / out_width * row() + pixel % out_width * channels) * stride;
  }
};

// 8x8 with stride 4 on four pictures, which is 2x2 on blocks of 4x4 pixels of four pictures.
constexpr Shape kFirst{21, 64, 2, 1, 20, 32};
constexpr Shape kSecond{20, 32, 4, 2, 9, 64};
constexpr Shape kThird{9, 64, 3, 1, 7, 64};
constexpr int kPictures = 4, kPixels = 84, kBlock = 4;
constexpr int kObservation = kPictures * kPixels * kPixels;

// The row of the weights [taps, outputs] for a number of a patch. Those of the second layer are by blocks of 2x2 pixels.
template <const Shape &shape>
constexpr int WeightRow(int tap) {
  if (&shape != &kSecond) return tap;
  const int channel = tap % 32, x = tap / 32 % 4, y = tap / 128;
  return ((y / 2 * 2 + x / 2) * 2 + y % 2) * 64 + x % 2 * 32 + channel;
}

constexpr int kVectors = 2;
constexpr int kPanel = kVectors * kLanes;  // columns that are computed together
constexpr int kTile = 6;                   // rows that are: as many as fit into registers
constexpr int kTapsOfTile = 4;
// Of a batch, each of which one thread sums up: always as many, so that sums do not depend on the number of threads.
constexpr int kParts = 8;

// Weights by panels [outputs / kPanel, taps, kPanel].
template <const Shape &shape>
void Pack(const float *weight, float *packed) {
  for (int column = 0; column < shape.outputs; column += kPanel) {
    for (int tap = 0; tap < shape.taps(); ++tap, packed += kPanel) {
      std::memcpy(packed, weight + WeightRow<shape>(tap) * shape.outputs + column, kPanel * sizeof(float));
    }
  }
}

// Transposed weights by panels [taps / kPanel, outputs, kPanel].
template <const Shape &shape>
void PackTransposed(const float *weight, float *packed) {
  for (int tap = 0; tap < shape.taps(); tap += kPanel) {
    for (int output = 0; output < shape.outputs; ++output) {
      for (int i = 0; i < kPanel; ++i) *packed++ = weight[WeightRow<shape>(tap + i) * shape.outputs + output];
    }
  }
}

// Bytes [4, 84, 84] to numbers within [0, 1] [21, 21, 4, 4, 4]: blocks of (picture, row, column).
INLINE void ToBlocks(const uint8_t *bytes, float *blocks) {
  for (int picture = 0; picture < kPictures; ++picture) {
    for (int y = 0; y < kPixels; ++y) {
      float *to = blocks + y / kBlock * kFirst.row() + (picture * kBlock + y % kBlock) * kBlock;
      for (int x = 0; x < kPixels; x += kBlock, to += kFirst.channels) {
        for (int i = 0; i < kBlock; ++i) to[i] = *bytes++ * (1.0f / 255);
      }
    }
  }
}

template <const Shape &shape, int num_pixels>
INLINE void ForwardTile(const float *in, const float *panel, const float *bias, int pixel, float *out) {
  const float *patches[num_pixels];
  for (int i = 0; i < num_pixels; ++i) patches[i] = in + shape.patch(pixel + i);
  Vector sums[num_pixels][kVectors] = {};
  for (int run = 0; run < shape.kernel; ++run) {
    for (int tap = 0; tap < shape.run(); ++tap, panel += kPanel) {
      for (int j = 0; j < kVectors; ++j) {
        const Vector weights = Load(panel + j * kLanes);
        for (int i = 0; i < num_pixels; ++i) sums[i][j] += patches[i][tap] * weights;
      }
    }
    for (int i = 0; i < num_pixels; ++i) patches[i] += shape.row();
  }
  for (int i = 0; i < num_pixels; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      const Vector sum = sums[i][j] + Load(bias + j * kLanes);
      // Written so that what is not a number stays so.
      Store(out + (pixel + i) * shape.outputs + j * kLanes, sum <= 0.0f ? Vector{} : sum);
    }
  }
}

// A layer's pixels [pixels, outputs], rectified.
template <const Shape &shape>
INLINE void Forward(const float *in, const float *packed, const float *bias, float *out) {
  constexpr int left = shape.pixels() % kTile;
  for (int column = 0; column < shape.outputs; column += kPanel, packed += shape.taps() * kPanel) {
    int pixel = 0;
    for (; pixel + kTile <= shape.pixels(); pixel += kTile) {
      ForwardTile<shape, kTile>(in, packed, bias + column, pixel, out + column);
    }
    if constexpr (left > 0) ForwardTile<shape, left>(in, packed, bias + column, pixel, out + column);
  }
}

// The gradient of what comes before the rectifier, and what it adds to that of the bias.
template <const Shape &shape>
INLINE void BackwardRectifier(const float *out, const float *gradient, float *before, float *bias) {
  for (int pixel = 0; pixel < shape.out_size(); pixel += shape.outputs) {
    for (int output = 0; output < shape.outputs; output += kLanes) {
      const Vector passed = Load(out + pixel + output) <= 0.0f ? Vector{} : Load(gradient + pixel + output);
      Store(before + pixel + output, passed);
      Add(bias + output, passed);
    }
  }
}

// Adds to the gradient of a layer's weights [taps, outputs].
template <const Shape &shape>
INLINE void BackwardWeights(const float *in, const float *gradient, float *weight) {
  for (int tap = 0; tap < shape.taps(); tap += kTapsOfTile) {
    const float *taps = in + tap / shape.run() * shape.row() + tap % shape.run();
    for (int column = 0; column < shape.outputs; column += kPanel) {
      Vector sums[kTapsOfTile][kVectors] = {};
      const float *from = gradient + column;
      for (int y = 0; y < shape.out_width; ++y) {
        const float *patch = taps + y * shape.stride * shape.row();
        for (int x = 0; x < shape.out_width; ++x, patch += shape.stride * shape.channels, from += shape.outputs) {
          for (int j = 0; j < kVectors; ++j) {
            const Vector gradients = Load(from + j * kLanes);
            for (int i = 0; i < kTapsOfTile; ++i) sums[i][j] += patch[i] * gradients;
          }
        }
      }
      for (int i = 0; i < kTapsOfTile; ++i) {
        for (int j = 0; j < kVectors; ++j) {
          Add(weight + WeightRow<shape>(tap + i) * shape.outputs + column + j * kLanes, sums[i][j]);
        }
      }
    }
  }
}

template <const Shape &shape, int num_pixels>
INLINE void BackwardTile(const float *gradient, const float *panel, int pixel, float *in) {
  gradient += pixel * shape.outputs;
  Vector sums[num_pixels][kVectors] = {};
  for (int output = 0; output < shape.outputs; ++output, panel += kPanel) {
    for (int j = 0; j < kVectors; ++j) {
      const Vector weights = Load(panel + j * kLanes);
      for (int i = 0; i < num_pixels; ++i) sums[i][j] += gradient[i * shape.outputs + output] * weights;
    }
  }
  for (int i = 0; i < num_pixels; ++i) {
    for (int j = 0; j < kVectors; ++j) Add(in + shape.patch(pixel + i) + j * kLanes, sums[i][j]);
  }
}

// The gradient of what a layer has read.
template <const Shape &shape>
INLINE void BackwardInput(const float *gradient, const float *packed, float *in) {
  constexpr int left = shape.pixels() % kTile;
  std::memset(in, 0, shape.in_size() * sizeof(float));
  for (int tap = 0; tap < shape.taps(); tap += kPanel, packed += shape.outputs * kPanel) {
    float *to = in + tap / shape.run() * shape.row() + tap % shape.run();
    int pixel = 0;
    for (; pixel + kTile <= shape.pixels(); pixel += kTile) {
      BackwardTile<shape, kTile>(gradient, packed, pixel, to);
    }
    if constexpr (left > 0) BackwardTile<shape, left>(gradient, packed, pixel, to);
  }
}

struct Layer {
  const float *packed, *bias;
};

void ForwardOne(const uint8_t *pictures, const Layer layers[3], float *first, float *second, float *third) {
  const std::unique_ptr<float[]> blocks(new float[kFirst.in_size()]);
  RunFast([&]() INLINED {
    ToBlocks(pictures, blocks.get());
    Forward<kFirst>(blocks.get(), layers[0].packed, layers[0].bias, first);
    Forward<kSecond>(first, layers[1].packed, layers[1].bias, second);
    Forward<kThird>(second, layers[2].packed, layers[2].bias, third);
  });
}

// Those of all parameters, one after the other.
struct Gradients {
  float *weights[3], *biases[3];

  static constexpr int64_t kSize = kFirst.parameters() + kSecond.parameters() + kThird.parameters();

  explicit Gradients(float *memory) {
    int layer = 0;
    for (const Shape &shape : {kFirst, kSecond, kThird}) {
      weights[layer] = memory;
      biases[layer++] = memory + shape.taps() * shape.outputs;
      memory += shape.parameters();
    }
  }
};

void BackwardOne(const uint8_t *pictures, const float *first, const float *second, const float *third,
                 const float *gradient, const float *packed_second, const float *packed_third,
                 const Gradients &to) {
  const std::unique_ptr<float[]> memory(new float[kFirst.in_size() + 2 * kFirst.out_size()]);
  float *const blocks = memory.get(), *const before = blocks + kFirst.in_size();
  float *const in = before + kFirst.out_size();
  RunFast([&]() INLINED {
    BackwardRectifier<kThird>(third, gradient, before, to.biases[2]);
    BackwardWeights<kThird>(second, before, to.weights[2]);
    BackwardInput<kThird>(before, packed_third, in);
    BackwardRectifier<kSecond>(second, in, before, to.biases[1]);
    BackwardWeights<kSecond>(first, before, to.weights[1]);
    BackwardInput<kSecond>(before, packed_second, in);
    BackwardRectifier<kFirst>(first, in, before, to.biases[0]);
    ToBlocks(pictures, blocks);
    BackwardWeights<kFirst>(blocks, before, to.weights[0]);
  });
}

// Whether pictures and parameters are of the sizes that everything here is made for.
bool Fit(const Bytes &pictures, int64_t weight1, int64_t weight2, int64_t weight3) {
  const auto sizes = pictures.dimensions();
  return sizes.size() == 4 && sizes[1] == kPictures && sizes[2] == kPixels && sizes[3] == kPixels &&
         weight1 == kFirst.taps() * kFirst.outputs && weight2 == kSecond.taps() * kSecond.outputs &&
         weight3 == kThird.taps() * kThird.outputs;
}

const char *const kMisfit = "the kernel is for pictures [N, 4, 84, 84] and DQN's convolutions";

ffi::Error Forwards(ffi::ThreadPool threads, Bytes pictures, Floats weight1, Floats bias1, Floats weight2,
                    Floats bias2, Floats weight3, Floats bias3, ffi::Result<Floats> first,
                    ffi::Result<Floats> second, ffi::Result<Floats> third) {
  if (!Fit(pictures, weight1.element_count(), weight2.element_count(), weight3.element_count())) {
    return ffi::Error::InvalidArgument(kMisfit);
  }
  const int64_t size = weight1.element_count() + weight2.element_count() + weight3.element_count();
  const std::unique_ptr<float[]> packed(new float[size]);
  float *const packed1 = packed.get(), *const packed2 = packed1 + weight1.element_count();
  float *const packed3 = packed2 + weight2.element_count();
  Pack<kFirst>(weight1.typed_data(), packed1);
  Pack<kSecond>(weight2.typed_data(), packed2);
  Pack<kThird>(weight3.typed_data(), packed3);
  const Layer layers[3] = {
      {packed1, bias1.typed_data()}, {packed2, bias2.typed_data()}, {packed3, bias3.typed_data()}};
  InParallel(threads, pictures.dimensions()[0], [&](int64_t n) {
    ForwardOne(pictures.typed_data() + n * kObservation, layers, first->typed_data() + n * kFirst.out_size(),
               second->typed_data() + n * kSecond.out_size(), third->typed_data() + n * kThird.out_size());
  });
  return ffi::Error::Success();
}

ffi::Error Backwards(ffi::ThreadPool threads, Bytes pictures, Floats first, Floats second, Floats third,
                     Floats weight2, Floats weight3, Floats gradient, ffi::Result<Floats> to_weight1,
                     ffi::Result<Floats> to_bias1, ffi::Result<Floats> to_weight2, ffi::Result<Floats> to_bias2,
                     ffi::Result<Floats> to_weight3, ffi::Result<Floats> to_bias3) {
  if (!Fit(pictures, to_weight1->element_count(), weight2.element_count(), weight3.element_count())) {
    return ffi::Error::InvalidArgument(kMisfit);
  }
  const std::unique_ptr<float[]> packed(new float[weight2.element_count() + weight3.element_count()]);
  float *const packed2 = packed.get(), *const packed3 = packed2 + weight2.element_count();
  PackTransposed<kSecond>(weight2.typed_data(), packed2);
  PackTransposed<kThird>(weight3.typed_data(), packed3);
  const int64_t batch = pictures.dimensions()[0];
  const std::unique_ptr<float[]> sums(new float[kParts * Gradients::kSize]);
  InParallel(threads, kParts, [&](int64_t part) {
    float *const own = sums.get() + part * Gradients::kSize;
    std::memset(own, 0, Gradients::kSize * sizeof(float));
    const Gradients to(own);
    for (int64_t n = batch * part / kParts; n < batch * (part + 1) / kParts; ++n) {
      BackwardOne(pictures.typed_data() + n * kObservation, first.typed_data() + n * kFirst.out_size(),
                  second.typed_data() + n * kSecond.out_size(), third.typed_data() + n * kThird.out_size(),
                  gradient.typed_data() + n * kThird.out_size(), packed2, packed3, to);
    }
  });
  for (int part = 1; part < kParts; ++part) {
    const float *const own = sums.get() + part * Gradients::kSize;
    for (int64_t i = 0; i < Gradients::kSize; ++i) sums[i] += own[i];
  }
  const float *from = sums.get();
  for (auto *to : {&to_weight1, &to_bias1, &to_weight2, &to_bias2, &to_weight3, &to_bias3}) {
    std::memcpy((*to)->typed_data(), from, (*to)->size_bytes());
    from += (*to)->element_count();
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(BootdqnTrunkForward, Forwards,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Bytes>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(BootdqnTrunkBackward, Backwards,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Bytes>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());
