/* The digits network of examples/python/digits.py, read from the file it saved.
 *
 *   digits FILE
 */
#include <clikart/clikart.h>
#include <clikart/ops.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the pointer, or ends the program with the thread's error. */
static void* need(void* pointer) {
    if (!pointer) {
        clikart_error* error = clikart_error_take();
        fprintf(stderr, "%s\n", clikart_error_message(error));
        clikart_error_release(error);
        exit(1);
    }
    return pointer;
}

static clikart_tensor* linear(const clikart_tensor* x, const clikart_archive* file, const char* weight_name, const char* bias_name) {
    const int64_t transposed[] = {1, 0};
    clikart_tensor* weight = need(clikart_archive_get(file, weight_name));
    clikart_tensor* bias = need(clikart_archive_get(file, bias_name));
    clikart_tensor* columns = need(clikart_permute(weight, transposed, 2));
    clikart_tensor* product = need(clikart_matmul(x, columns));
    clikart_tensor* result = need(clikart_add(product, bias));
    /* Work that is under way keeps what it needs. */
    clikart_tensor_release(weight);
    clikart_tensor_release(bias);
    clikart_tensor_release(columns);
    clikart_tensor_release(product);
    return result;
}

static clikart_tensor* classify(const clikart_tensor* images, const clikart_archive* file) {
    const int64_t classes[] = {1};
    clikart_tensor* hidden = linear(images, file, "network.hidden.weight", "network.hidden.bias");
    clikart_tensor* active = need(clikart_relu(hidden));
    clikart_tensor* output = linear(active, file, "network.output.weight", "network.output.bias");
    clikart_tensor* probabilities = need(clikart_softmax(output, -1));
    clikart_tensor* digits = need(clikart_argmax(probabilities, classes, 1, false));
    clikart_tensor_release(hidden);
    clikart_tensor_release(active);
    clikart_tensor_release(output);
    clikart_tensor_release(probabilities);
    return digits;
}

int main(int argc, char** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: digits FILE\n");
        return 2;
    }
    clikart_archive* file = need(clikart_archive_load(argv[1]));
    clikart_tensor* images = need(clikart_archive_get(file, "data.images"));
    clikart_tensor* labels = need(clikart_archive_get(file, "data.labels"));
    clikart_tensor* held_out = need(clikart_archive_get(file, "data.held_out"));

    clikart_tensor* eager = classify(images, file);

    /* The same as a graph. */
    if (clikart_capture_begin() != 0) need(NULL);
    clikart_tensor* stand_in = need(clikart_capture_input("images", clikart_tensor_dtype(images), clikart_tensor_shape(images), clikart_tensor_rank(images)));
    clikart_tensor* result = classify(stand_in, file);
    const char* name = "digits";
    clikart_graph* graph = need(clikart_capture_end((const clikart_tensor* const*)&result, &name, 1));
    clikart_tensor* traced = NULL;
    if (clikart_graph_run(graph, (const clikart_tensor* const*)&images, 1, &traced, 1) != 0) need(NULL);

    const int64_t* predicted = need(clikart_tensor_data(eager));
    const int64_t* replayed = need(clikart_tensor_data(traced));
    const int64_t* truth = need(clikart_tensor_data(labels));
    const bool* mask = need(clikart_tensor_data(held_out));
    uint64_t checksum = 0xCBF29CE484222325u; /* FNV-1a, one byte for each prediction */
    int count = 0, right = 0, same = 1;
    for (int64_t i = 0; i < clikart_tensor_numel(labels); ++i) {
        checksum = (checksum ^ (uint64_t)predicted[i]) * 0x100000001B3u;
        count += mask[i];
        right += mask[i] && predicted[i] == truth[i];
        same &= predicted[i] == replayed[i];
    }
    printf("accuracy on the held-out third: %.4f (%d of %d)\n", (double)right / count, right, count);
    printf("eager and traced agree: %s\n", same ? "True" : "False");
    printf("checksum over all predictions: %016llx\n", (unsigned long long)checksum);

    clikart_tensor_release(images);
    clikart_tensor_release(labels);
    clikart_tensor_release(held_out);
    clikart_tensor_release(eager);
    clikart_tensor_release(stand_in);
    clikart_tensor_release(result);
    clikart_tensor_release(traced);
    clikart_graph_release(graph);
    clikart_archive_release(file);
    return 0;
}
