// Sorts the table by a column: numbers by the cell's data-value, empty ones last, and the other way round on the second press.
document.querySelectorAll('table.sortable').forEach(table => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector('button').addEventListener('click', () => {
    const descending = head.getAttribute('aria-sort') === 'ascending';
    heads.forEach(each => each.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const value = row => row.cells[column] ? row.cells[column].dataset.value : undefined;
    const compare = (first, second) => {
      const [a, b] = [value(first), value(second)];
      if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
      const order = column === 0 ? a.localeCompare(b, undefined, {numeric: true}) : a - b;
      return descending ? -order : order;
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  }));
});
