/* The mesh: see mesh.h. rank = ((pipeline * D + data) * S + sequence) * T + tensor. */
#include "engine/mesh.h"

static const char *const axis_name[MESH_AXES] = {"pipeline", "data", "sequence", "tensor"};

int mesh_init(struct mesh *m, int world, const int64_t sizes[MESH_AXES], struct err *err)
{
    int64_t product = 1;
    int automatic = -1;

    m->world = world;
    for (int a = 0; a < MESH_AXES; a++) {
        if (sizes[a] < 0 || sizes[a] > world)
            return err_set(err, ERR_INPUT,
                           "[parallel] %s = %lld does not fit %d ranks; give 1 to %d, or auto",
                           axis_name[a], (long long)sizes[a], world, world);
        if (sizes[a] == 0 && (automatic < 0 || a == MESH_DATA))
            automatic = a;
        m->size[a] = sizes[a] ? (int)sizes[a] : 1;
        product *= m->size[a];
    }
    if (automatic >= 0 && product <= world && world % product == 0) {
        m->size[automatic] = (int)(world / product);
        return 0;
    }
    if (product != world)
        return err_set(err, ERR_INPUT,
                       "[parallel] pipeline %d x data %d x sequence %d x tensor %d = %lld does not %s "
                       "%d ranks; change one of them or leave data out",
                       m->size[MESH_PIPELINE], m->size[MESH_DATA], m->size[MESH_SEQUENCE],
                       m->size[MESH_TENSOR], (long long)product,
                       automatic >= 0 ? "divide" : "equal", world);
    return 0;
}

void mesh_coords(const struct mesh *m, int rank, int at[MESH_AXES])
{
    for (int a = MESH_AXES - 1; a >= 0; a--) {
        at[a] = rank % m->size[a];
        rank /= m->size[a];
    }
}

int mesh_rank(const struct mesh *m, const int at[MESH_AXES])
{
    int rank = 0;

    for (int a = 0; a < MESH_AXES; a++)
        rank = rank * m->size[a] + at[a];
    return rank;
}

int mesh_group(const struct mesh *m, int rank, enum mesh_axis axis, int *out)
{
    int at[MESH_AXES], own;

    mesh_coords(m, rank, at);
    own = at[axis];
    for (int i = 0; i < m->size[axis]; i++) {
        at[axis] = i;
        out[i] = mesh_rank(m, at);
    }
    return own;
}
