// One step of centred RMSProp for weights whose gradient is a sum of outer products, in a single pass over them.
//
// The gradient is computed for a few weights at a time and used while it is in registers: it is never in memory, and
// the weights and both moments are read and written once.

#include "common.h"

namespace {

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;

// Weights that are changed together: a cache line in each of a few rows.
constexpr int kRows = 4;
constexpr int kVectors = 2;
constexpr int64_t kColumns = kLanes * kVectors;
// Columns from those that are changed to those that are asked for in advance: without this the pass waits for memory.
constexpr int64_t kAhead = 4 * kColumns;
// Rows that a thread takes at a time.
constexpr int64_t kRowsOfTask = 32;

struct Step {
  float *weight, *mean, *square;  // [rows, columns]
  const float *left;              // [rows, batch]
  const float *right;             // [batch, columns]
  int64_t rows, columns, batch;
  float rate, decay, epsilon;
};

INLINE float LoadOne(const float *from) { return *from; }

using ::Store;

INLINE void Store(float *to, float number) { *to = number; }

INLINE float SquareRoot(float number) { return __builtin_sqrtf(number); }

INLINE Vector SquareRoot(Vector vector) {
  for (int lane = 0; lane < kLanes; ++lane) vector[lane] = __builtin_sqrtf(vector[lane]);
  return vector;
}

// Number is a vector or a float, and `load` reads one.
template <typename Number, typename Read>
INLINE void Change(const Step &step, int64_t at, Number gradient, Read load) {
  const Number mean = step.decay * load(step.mean + at) + (1 - step.decay) * gradient;
  const Number square = step.decay * load(step.square + at) + (1 - step.decay) * gradient * gradient;
  Store(step.mean + at, mean);
  Store(step.square + at, square);
  const Number deviation = SquareRoot(square - mean * mean + step.epsilon);
  Store(step.weight + at, load(step.weight + at) - step.rate * gradient / deviation);
}

template <int num_rows>
INLINE void ChangeRows(const Step &step, int64_t row) {
  const float *left = step.left + row * step.batch;
  int64_t column = 0;
  for (; column + kColumns <= step.columns; column += kColumns) {
    for (int i = 0; i < num_rows; ++i) {
      const int64_t ahead = (row + i) * step.columns + column + kAhead;
      __builtin_prefetch(step.weight + ahead, 1);
      __builtin_prefetch(step.mean + ahead, 1);
      __builtin_prefetch(step.square + ahead, 1);
    }
    Vector gradient[num_rows][kVectors] = {};
    for (int64_t b = 0; b < step.batch; ++b) {
      for (int j = 0; j < kVectors; ++j) {
        const Vector right = Load(step.right + b * step.columns + column + j * kLanes);
        for (int i = 0; i < num_rows; ++i) gradient[i][j] += left[i * step.batch + b] * right;
      }
    }
    for (int i = 0; i < num_rows; ++i) {
      for (int j = 0; j < kVectors; ++j) {
        Change(step, (row + i) * step.columns + column + j * kLanes, gradient[i][j], Load);
      }
    }
  }
  for (; column < step.columns; ++column) {
    for (int i = 0; i < num_rows; ++i) {
      float gradient = 0;
      for (int64_t b = 0; b < step.batch; ++b) {
        gradient += left[i * step.batch + b] * step.right[b * step.columns + column];
      }
      Change(step, (row + i) * step.columns + column, gradient, LoadOne);
    }
  }
}

void ChangeRange(const Step &step, int64_t begin, int64_t end) {
  RunFast([&]() INLINED {
    int64_t row = begin;
    for (; row + kRows <= end; row += kRows) ChangeRows<kRows>(step, row);
    for (; row < end; ++row) ChangeRows<1>(step, row);
  });
}

// The results are in the memory of the first three arguments, which XLA sees to.
ffi::Error Run(ffi::ThreadPool threads, Floats, Floats, Floats, Floats left, Floats right,
               ffi::Result<Floats> weight, ffi::Result<Floats> mean, ffi::Result<Floats> square, float rate,
               float decay, float epsilon) {
  const bool fits = left.dimensions().size() == 2 && right.dimensions().size() == 2 &&
                    left.dimensions()[1] == right.dimensions()[0] &&
                    int64_t(weight->element_count()) == left.dimensions()[0] * right.dimensions()[1];
  if (!fits) return ffi::Error::InvalidArgument("these outer products do not make an array like the weights");
  Step step;
  step.weight = weight->typed_data(), step.mean = mean->typed_data(), step.square = square->typed_data();
  step.left = left.typed_data(), step.right = right.typed_data();
  step.rows = left.dimensions()[0], step.batch = left.dimensions()[1], step.columns = right.dimensions()[1];
  step.rate = rate, step.decay = decay, step.epsilon = epsilon;
  InParallel(threads, (step.rows + kRowsOfTask - 1) / kRowsOfTask, [step](int64_t task) {
    ChangeRange(step, task * kRowsOfTask, std::min((task + 1) * kRowsOfTask, step.rows));
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(BootdqnRMSProp, Run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Attr<float>("rate")
                                  .Attr<float>("decay")
                                  .Attr<float>("epsilon"));
