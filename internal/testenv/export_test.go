package testenv

// What tests of this package look for outside its folders.

func (d *Disk) Dir() string     { return d.dir }
func (n *Network) Name() string { return n.name }
func (m *Memory) Dir() string   { return m.dir }
